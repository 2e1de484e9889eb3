"""Q4_K, Q5_K and Q6_K written: the `gguf` package reads them, and writes every other type.

Contract: :func:`quantize` is `gguf.quants.quantize` for more types. Values are
rounded to the nearest step of plain scales (no search for better ones), laid
out as the package reads them.
"""

from __future__ import annotations

import gguf.quants
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Kind

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def quantize(values: Floats, kind: Kind) -> npt.NDArray[np.generic]:
    """Returns rows of a type, in the form that a GGUF writer takes."""
    if kind not in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
        return np.asarray(gguf.quants.quantize(values, kind))
    blocks = values.reshape(-1, 8, 32).astype(np.float64)
    stored = _six(blocks) if kind == Kind.Q6_K else _with_minimum(blocks, 15 if kind == Kind.Q4_K else 31)
    return stored.reshape(*values.shape[:-1], -1)


def _half(scale: npt.NDArray[np.float64]) -> tuple[Bytes, npt.NDArray[np.float64]]:
    """A scale a block as bytes [blocks, 2], and what it became, [blocks, 1]."""
    half = scale.astype(np.float16).reshape(-1, 1)
    return half.view(np.uint8), half.astype(np.float64)


def _steps(values: npt.NDArray[np.float64], step: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.rint(np.divide(values, step, out=np.zeros_like(values), where=step != 0))


def _with_minimum(blocks: npt.NDArray[np.float64], most: int) -> Bytes:
    low = np.minimum(blocks.min(-1), 0)
    wanted = (blocks.max(-1) - low) / most
    scale_bytes, scale = _half(wanted.max(-1) / 63)
    minimum_bytes, minimum = _half(-low.min(-1) / 63)
    scales = _steps(wanted, np.broadcast_to(scale, wanted.shape)).clip(0, 63)
    minima = _steps(-low, np.broadcast_to(minimum, low.shape)).clip(0, 63)
    step = np.broadcast_to((scale * scales)[..., None], blocks.shape)
    integers = _steps(blocks + (minimum * minima)[..., None], step).clip(0, most).astype(np.uint8)
    s, m = scales.astype(np.uint8), minima.astype(np.uint8)
    six = [
        s[:, :4] | (s[:, 4:] >> 4 << 6),
        m[:, :4] | (m[:, 4:] >> 4 << 6),
        (s[:, 4:] & 15) | (m[:, 4:] << 4),
    ]
    pairs = (integers & 15).reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | (pairs[:, :, 1] << 4)).reshape(-1, 128)
    fifth = (integers >> 4 << np.arange(8, dtype=np.uint8)[:, None]).sum(1, dtype=np.uint8)
    return np.concatenate(
        [scale_bytes, minimum_bytes, *six, *([fifth] if most == 31 else []), nibbles], axis=1
    )


def _six(blocks: npt.NDArray[np.float64]) -> Bytes:
    halves = blocks.reshape(-1, 16, 16)
    wanted = np.abs(halves).max(-1) / 31
    scale_bytes, scale = _half(wanted.max(-1) / 127)
    scales = _steps(wanted, np.broadcast_to(scale, wanted.shape)).clip(0, 127)
    step = np.broadcast_to((scale * scales)[..., None], halves.shape)
    integers = (_steps(halves, step).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = integers & 15, integers >> 4
    nibbles = (low[:, :, :2] | (low[:, :, 2:] << 4)).reshape(-1, 128)
    bits = (high << np.array([0, 2, 4, 6], np.uint8)[:, None]).sum(2, dtype=np.uint8).reshape(-1, 64)
    return np.concatenate([nibbles, bits, scales.astype(np.int8).view(np.uint8), scale_bytes], axis=1)
