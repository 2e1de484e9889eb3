"""Every operation of a device against the CPU's plain reference and against its own kernels on the processor.

Contract: :func:`compare_operations` runs each case three times with the same
inputs: on the device under test, with the plain backend of the CPU's library
(one reference an operation, itself tested against exact arithmetic) and with the
emulated kernels. A case passes when it is near the reference, when its decode
and prefill forms give the same bytes, and, where its arithmetic is fixed to the
last bit (everything but attention, whose matrix unit rounds in its own way), when
it equals the emulation byte for byte.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from server.random_model import random_blocks

Floats = npt.NDArray[np.float32]
Arrays = tuple[npt.NDArray[np.generic], ...]
_KINDS = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "q4_k": 12,
    "q5_k": 13,
    "q6_k": 14,
    "bf16": 30,
    "w4_f16": 1000,
    "w4_bf16": 1001,
    "nvfp4": 1002,
}
_FLOATS = ("f32", "f16", "bf16")
# Of types that random_blocks does not make: values and bytes of a block, and where it has 16-bit scales.
_BLOCKS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "q5_0": (32, 22, (0,)),
    "q5_1": (32, 24, (0, 2)),
    "q4_k": (256, 144, (0, 2)),
    "q5_k": (256, 176, (0, 2)),
    "q6_k": (256, 210, (208,)),
    "w4_f16": (128, 66, (0,)),
    "w4_bf16": (128, 66, (0,)),
    "nvfp4": (32, 18, (0,)),
}
_FACTOR = 3.0  # of a tensor, where its type has one
_DECODE, _PREFILL = 0, 1


@dataclass(frozen=True)
class Verdict:
    """One operation at one shape."""

    name: str
    passed: bool
    error: float  # the largest difference from the reference, relative to the reference's largest value
    tolerance: float
    same_as_emulated: bool | None  # None: not asked of this operation


class Backend:
    """The operations of one library."""

    def __init__(self, library: Path, isa: str) -> None:
        """Loads it."""
        self._library = ctypes.CDLL(str(library))
        self._isa = isa.encode()

    def call(self, name: str, *arguments: object) -> None:
        """Calls `assay_op_<name>`; a failure is a RuntimeError."""
        native = [
            argument.ctypes.data_as(ctypes.c_void_p) if isinstance(argument, np.ndarray) else argument
            for argument in arguments
        ]
        status = getattr(self._library, f"assay_op_{name}")(self._isa, *native)
        if status != 0:
            raise RuntimeError(f"the operation {name} ended with status {status}")


@dataclass(frozen=True)
class Case:
    """One operation at one shape: `run(backend)` gives its outputs."""

    name: str
    run: Callable[[Backend], Arrays]
    tolerance: float
    fixed: bool = True  # to the last bit
    reference: bool = True  # the CPU's library has it
    same: bool = False  # its outputs are one answer in several forms: the same bytes


def compare_operations(
    device: Backend, plain: Backend, emulated: Backend, given_cases: Iterable[Case]
) -> Iterator[Verdict]:
    """Yields a verdict for each case."""
    for case in given_cases:
        given, same = case.run(device), case.run(emulated)
        expected = case.run(plain) if case.reference else same
        error = max(_error(a, b) for a, b in zip(given, expected, strict=True))
        equal = (
            all(a.tobytes() == b.tobytes() for a, b in zip(given, same, strict=True)) if case.fixed else None
        )
        passed = error <= case.tolerance and equal is not False
        if case.same:
            passed = passed and all(each.tobytes() == given[0].tobytes() for each in given)
        yield Verdict(case.name, passed, error, case.tolerance, equal)


def _error(given: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]) -> float:
    a, b = given.astype(np.float64), expected.astype(np.float64)
    if not np.isfinite(a).all():
        return float("inf")
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def cases(large: bool) -> Iterator[Case]:
    """Yields every operation of any model; `large` adds shapes that take the emulation seconds."""
    random = np.random.default_rng(11)

    def gaussian(*shape: int) -> Floats:
        return random.standard_normal(shape).astype(np.float32)

    for kind in _KINDS:
        group = max(32, _BLOCKS.get(kind, (32,))[0])  # columns of a block, of which a row has whole ones
        yield _embed(kind, _matrix(random, kind, 37, 3 * group), 3 * group)
        narrow = ((41, 96), (70, 320)) if group == 32 else ((41, group), (70, 3 * group))
        for rows, columns in (*narrow, *(((300, 4096),) if large else ())):
            weights = _matrix(random, kind, rows, columns)
            for count, refinements in ((1, 0), (3, columns // 256 + 1), (17, columns // 32)):
                yield _qlinear(kind, weights, gaussian(count, columns), refinements)
    for width in (64, 576, *((4096,) if large else ())):
        yield _normal(gaussian(width) * 30, gaussian(width))
        yield _quantise(gaussian(width) * 3, 1 + width // 256)
        yield _silu(gaussian(width) * 4, gaussian(width))
    yield _rope(gaussian(64))
    for size in (1, 75, 1000, *((49152,) if large else ())):
        yield _argmax(gaussian(size))
    yield _sample(gaussian(4, 1000), np.array([0.0, 0.3, 0.7, 0.999], np.float32))
    for kv, name in ((0, "f16"), (1, "int8"), (2, "q4")):
        small = (32 if name == "q4" else 40, 33)
        for head_dim, positions in (small, (64, 140), (128, 130), *(((256, 700),) if large else ())):
            keys, values = gaussian(positions, head_dim), gaussian(positions, head_dim)
            yield _kv_write(kv, name, keys, values)
            yield _attention(kv, name, gaussian(5, head_dim) / np.float32(np.sqrt(head_dim)), keys, values)


def _matrix(random: np.random.Generator, kind: str, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    if kind in _FLOATS:
        values = random.standard_normal((rows, columns)).astype(np.float32)
        if kind == "bf16":
            return _upper_halves(values).reshape(rows, -1)
        return values.astype(np.float32 if kind == "f32" else np.float16).view(np.uint8).reshape(rows, -1)
    if kind not in _BLOCKS:
        return random_blocks(random, _KINDS[kind], rows * columns // 32, 1.0).reshape(rows, -1)
    values_of, size, scales = _BLOCKS[kind]
    blocks = random.integers(0, 256, (rows * columns // values_of, size), np.uint8)
    for at in scales:
        scale = random.uniform(0.05, 0.2, (len(blocks), 1)).astype(np.float32)
        if kind == "nvfp4":
            blocks[:, :2] = random.integers(0x28, 0x40, (len(blocks), 2))
        else:
            stored = _upper_halves(scale) if kind == "w4_bf16" else scale.astype(np.float16).view(np.uint8)
            blocks[:, at : at + 2] = stored
    return blocks.reshape(rows, -1)


def _upper_halves(values: Floats) -> npt.NDArray[np.uint8]:
    """The bytes of bfloat16 numbers: of each value the upper 16 bits, [count, 2 * last]."""
    return np.ascontiguousarray(values.view(np.uint16)[..., 1::2]).view(np.uint8)


def _embed(kind: str, table: npt.NDArray[np.uint8], columns: int) -> Case:
    def run(backend: Backend) -> Arrays:
        out = np.empty(columns, np.float32)
        stored = (ctypes.c_uint32(_KINDS[kind]), ctypes.c_float(_FACTOR), table)
        backend.call("embed", *stored, len(table), columns, 33, out)
        return (out,)

    return Case(f"embed {kind}", run, 1e-6)


def _qlinear(kind: str, weights: npt.NDArray[np.uint8], x: Floats, refinements: int) -> Case:
    rows, (count, columns) = len(weights), x.shape
    refinements = 0 if kind in _FLOATS else refinements

    def run(backend: Backend) -> Arrays:
        outs = []
        for form in (_DECODE, _PREFILL):
            out = np.ones((count, rows), np.float32)
            stored = (ctypes.c_uint32(_KINDS[kind]), ctypes.c_float(_FACTOR), weights)
            backend.call("qlinear", form, *stored, rows, columns, x, count, refinements, 1, out)
            outs.append(out)
        return tuple(outs)

    return Case(f"qlinear {kind} {count} x {columns} x {rows}, {refinements} refined", run, 1e-5, same=True)


def _normal(x: Floats, weight: Floats) -> Case:
    def run(backend: Backend) -> Arrays:
        out = np.empty_like(x)
        backend.call("rmsnorm", x, weight, len(x), ctypes.c_float(1e-5), out)
        return (out,)

    return Case(f"rmsnorm {len(x)}", run, 1e-5)


def _quantise(x: Floats, refinements: int) -> Case:
    def run(backend: Backend) -> Arrays:
        stored = len(x) // 32 + refinements
        q, refined = np.empty(stored * 32, np.int8), np.empty(refinements, np.int32)
        scale, total = np.empty(stored, np.float32), np.empty(stored, np.float32)
        backend.call("quantise", x, len(x), q, scale, total, refined, refinements)
        return q, scale, total, refined

    return Case(f"quantise {len(x)}, {refinements} refined", run, 0.0)


def _silu(gate: Floats, up: Floats) -> Case:
    def run(backend: Backend) -> Arrays:
        out = np.empty_like(gate)
        backend.call("silu_mul", gate, up, len(gate), out)
        return (out,)

    return Case(f"silu_mul {len(gate)}", run, 1e-6)


def _rope(head: Floats) -> Case:
    angle = 1234 * 10000.0 ** (-np.arange(0, 40, 2) / 40)
    cosine, sine = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def run(backend: Backend) -> Arrays:
        out = head.copy()
        backend.call("rope", out, 40, cosine, sine)
        return (out,)

    return Case("rope 40 of 64", run, 1e-6)


def _argmax(x: Floats) -> Case:
    x[len(x) // 3] = x[-1] = 9

    def run(backend: Backend) -> Arrays:
        index = np.empty(1, np.int32)
        backend.call("argmax", x, len(x), index)
        return (index,)

    return Case(f"argmax {len(x)}", run, 0.0)


def _sample(x: Floats, uniform: Floats) -> Case:
    def run(backend: Backend) -> Arrays:
        index = np.empty(len(x), np.int32)
        backend.call("sample", x, x.shape[1], len(x), ctypes.c_float(0.8), uniform, index)
        return (index,)

    return Case("sample 4 x 1000", run, 0.0, reference=False)


def _kv_write(kv: int, name: str, keys: Floats, values: Floats) -> Case:
    positions, width = keys.shape
    key_bytes = 128 * width * (4, 2, 1)[kv] // 2
    size = 2 * key_bytes + (0, 1024, 2 * 128 * width // 32 * 4)[kv]

    def run(backend: Backend) -> Arrays:
        lane = np.empty(1, np.int32)
        backend.call("key_lane", lane)
        blocks = np.zeros((-(-positions // 128), size), np.uint8)
        backend.call("kv_write", kv, keys, values, width, positions, blocks)
        kind = np.float16 if kv == 0 else np.int8
        items = key_bytes // 128 // np.dtype(kind).itemsize  # of a position: at 4 bits two numbers each
        stored = np.ascontiguousarray(blocks[:, :key_bytes]).view(kind).reshape(-1, items, int(lane[0]))
        in_order = np.ascontiguousarray(stored.transpose(0, 2, 1)).reshape(-1, items)[:positions]
        return in_order, np.ascontiguousarray(blocks[:, key_bytes : 2 * key_bytes]).view(kind)

    return Case(f"kv_write {name} {positions} x {width}", run, 0.0)


def _attention(kv: int, name: str, q: Floats, keys: Floats, values: Floats) -> Case:
    positions, width = keys.shape
    visible = np.array([positions, 1, positions - 1, positions // 2 + 1, 32], np.int32)

    def run(backend: Backend) -> Arrays:
        outs = []
        for form in (_DECODE, _PREFILL):
            out = np.empty_like(q)
            backend.call("attention", form, kv, q, visible, len(q), width, keys, values, positions, out)
            outs.append(out)
        return tuple(outs)

    return Case(f"attention {name} {positions} x {width}", run, 1e-5, fixed=False, same=True)
