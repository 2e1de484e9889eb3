"""Single operations of the compiled engine (`engine/assay_ops.h`), one method each, on numpy arrays."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import linalg

from server.build import ensure_built

Floats = npt.NDArray[np.float32]

DECODE, PREFILL = 0, 1
F16, INT8, Q4 = 0, 1, 2
POSITION_BLOCK = 128


@dataclass(frozen=True)
class Quantised:
    """A row as blocks of int8: every block in order, then the residuals of the refined ones."""

    q: npt.NDArray[np.int8]  # [blocks, 32]
    scale: Floats
    sum: Floats
    refined: npt.NDArray[np.int32]

    def values(self) -> npt.NDArray[np.float64]:
        """What the row stands for."""
        blocks = self.q * self.scale[:, None].astype(np.float64)
        count = len(blocks) - len(self.refined)
        result = blocks[:count]
        for block, residual in zip(self.refined, blocks[count:], strict=True):
            result[block] += residual
        return result.reshape(-1)


class Operations:
    """One backend's operations; every method fails the test on a status other than 0."""

    def __init__(self, isa: str, library: Path | None = None) -> None:
        self._isa = isa.encode()
        self._library = ctypes.CDLL(str(ensure_built().library if library is None else library))

    def embed(
        self, kind: int, table: npt.NDArray[np.uint8], columns: int, token: int, factor: float = 1.0
    ) -> Floats:
        out = np.empty(columns, np.float32)
        self._call(
            "embed", ctypes.c_uint32(kind), ctypes.c_float(factor), table, len(table), columns, token, out
        )
        return out

    def rmsnorm(self, x: Floats, weight: Floats, epsilon: float) -> Floats:
        out = np.empty_like(x)
        self._call("rmsnorm", x, weight, len(x), ctypes.c_float(epsilon), out)
        return out

    def quantise(self, x: Floats, refinements: int = 0) -> Quantised:
        stored = len(x) // 32 + refinements
        q, refined = np.empty(stored * 32, np.int8), np.empty(refinements, np.int32)
        scale, total = np.empty(stored, np.float32), np.empty(stored, np.float32)
        self._call("quantise", x, len(x), q, scale, total, refined, refinements)
        return Quantised(q.reshape(-1, 32), scale, total, refined)

    def qlinear(
        self,
        form: int,
        kind: int,
        weights: npt.NDArray[np.uint8],
        x: Floats,
        refinements: int = 0,
        added_to: Floats | None = None,
        factor: float = 1.0,
    ) -> Floats:
        out = np.empty((len(x), len(weights)), np.float32) if added_to is None else added_to.copy()
        add = 0 if added_to is None else 1
        self._call(
            *("qlinear", form, ctypes.c_uint32(kind), ctypes.c_float(factor), weights, len(weights)),
            *(x.shape[1], x, len(x), refinements, add, out),
        )
        return out

    def rope(self, head: Floats, cosine: Floats, sine: Floats) -> Floats:
        out = head.copy()
        self._call("rope", out, 2 * len(cosine), cosine, sine)
        return out

    def kv_write(self, kv: int, keys: Floats, values: Floats) -> tuple[Floats, Floats]:
        """Returns what the blocks say the keys and values are, in position order, [positions, head_dim]."""
        positions, width = keys.shape
        lane = np.empty(1, np.int32)
        self._call("key_lane", lane)
        if kv == Q4:
            return self._kv_groups(keys, values, int(lane[0]))
        items = POSITION_BLOCK * width
        kind = np.dtype(np.float16 if kv == F16 else np.int8)
        block_bytes = 2 * items * kind.itemsize + (0 if kv == F16 else 8 * POSITION_BLOCK)
        blocks = np.zeros((-(-positions // POSITION_BLOCK), block_bytes), np.uint8)
        self._call("kv_write", kv, keys, values, width, positions, blocks)
        split = [items * kind.itemsize, 2 * items * kind.itemsize]
        key_part, value_part, scales = np.split(blocks, split, axis=1)
        stored_keys = np.ascontiguousarray(key_part).view(kind).reshape(-1, width, lane[0])
        stored_values = np.ascontiguousarray(value_part).view(kind).reshape(-1, width)
        read_keys = stored_keys.transpose(0, 2, 1).reshape(-1, width).astype(np.float32)
        read_values = stored_values.astype(np.float32)
        if kv == INT8:
            key_scale, value_scale = np.split(np.ascontiguousarray(scales).view(np.float32), 2, axis=1)
            read_keys, read_values = (
                read_keys * key_scale.reshape(-1, 1),
                read_values * value_scale.reshape(-1, 1),
            )
        return read_keys[:positions], read_values[:positions]

    def _kv_groups(self, keys: Floats, values: Floats, lane: int) -> tuple[Floats, Floats]:
        """The same of groups of 32 values at 4 bits (`ops.h`)."""
        positions, width = keys.shape
        half, groups = POSITION_BLOCK * width // 2, width // 32
        scales = groups * 2 * POSITION_BLOCK
        blocks = np.zeros((-(-positions // POSITION_BLOCK), 2 * half + 4 * scales), np.uint8)
        self._call("kv_write", Q4, keys, values, width, positions, blocks)
        parts = np.split(blocks, [half, 2 * half, 2 * half + 2 * scales], axis=1)
        key_part, value_part, key_scales, value_scales = (np.ascontiguousarray(part) for part in parts)
        pairs = key_part.reshape(-1, width // 2, lane).transpose(0, 2, 1).reshape(-1, width // 2)
        n = np.stack([pairs & 15, pairs >> 4], axis=2).reshape(-1, groups, 32)
        by_group = key_scales.view(np.float16).reshape(-1, groups, 2, POSITION_BLOCK).transpose(0, 3, 1, 2)
        read_keys = _widened(n, by_group.reshape(-1, groups, 2))
        pairs = value_part.reshape(-1, groups, 16)
        n = np.concatenate([pairs & 15, pairs >> 4], axis=2)
        read_values = _widened(n, value_scales.view(np.float16).reshape(-1, groups, 2))
        return mixed(read_keys[:positions]), read_values[:positions]

    def attention(
        self, form: int, q: Floats, visible: list[int], keys: Floats, values: Floats, kv: int = 0
    ) -> Floats:
        out = np.empty_like(q)
        seen = np.array(visible, np.int32)
        self._call("attention", form, kv, q, seen, len(q), q.shape[1], keys, values, len(keys), out)
        return out

    def silu_mul(self, gate: Floats, up: Floats) -> Floats:
        out = np.empty_like(gate)
        self._call("silu_mul", gate, up, len(gate), out)
        return out

    def argmax(self, x: Floats) -> int:
        index = np.empty(1, np.int32)
        self._call("argmax", x, len(x), index)
        return int(index[0])

    def _call(self, name: str, *arguments: object) -> None:
        native = [
            argument.ctypes.data_as(ctypes.c_void_p) if isinstance(argument, np.ndarray) else argument
            for argument in arguments
        ]
        assert all(a.flags.c_contiguous for a in arguments if isinstance(a, np.ndarray))
        assert getattr(self._library, f"assay_op_{name}")(self._isa, *native) == 0


def mixed(heads: Floats) -> Floats:
    """Heads [positions, head_dim] times the normalised Hadamard matrix, which is its own inverse."""
    width = heads.shape[1] & -heads.shape[1]
    matrix = linalg.hadamard(width) / np.sqrt(width)
    return (heads.reshape(-1, width) @ matrix).astype(np.float32).reshape(heads.shape)


def _widened(n: npt.NDArray[np.uint8], scales: npt.NDArray[np.float16]) -> Floats:
    """What groups [positions, groups, 32] say by their scales and minima [positions, groups, 2]."""
    scale, minimum = (scales[:, :, part, None] for part in (0, 1))
    return (scale * n.astype(np.float16) + minimum).astype(np.float32).reshape(len(n), -1)


def dequantised(kind: int, row: npt.NDArray[np.uint8], columns: int, factor: float = 1.0) -> Floats:
    """What the engine takes a stored row for (`engine/dequantise.h`)."""
    out = np.empty(columns, np.float32)
    library = ctypes.CDLL(str(ensure_built().library))
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (np.ascontiguousarray(row), out)]
    number, divisor = ctypes.c_uint32(kind), ctypes.c_float(factor)
    assert library.assay_op_dequantise(number, divisor, pointers[0], columns, pointers[1]) == 0
    return out
