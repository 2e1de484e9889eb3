"""The row forms of safetensors (`server/engine/tensor_type.h`), written and read in numpy.

Contract: written after the published formats, not after the engine: a row of
W4A16 means nibble less 8 times the group's scale, rounded to the scale's own
type, and one of NVFP4 the E2M1 value times the quotient of its E4M3 scale and
the tensor's factor, rounded to bfloat16.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

W4_F16, W4_BF16, NVFP4 = 1000, 1001, 1002
GROUP = 128  # values that share a scale of W4A16
BYTES_OF = {W4_F16: (GROUP, 66), W4_BF16: (GROUP, 66), NVFP4: (32, 18)}  # values and bytes of a block

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def bfloat(bits: npt.NDArray[np.uint16]) -> Floats:
    """What the 16 bits of bfloat16 numbers are."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat(values: Floats) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bfloat16 numbers, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32).astype(np.uint64)
    nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), nearest)


def e4m3(values: Bytes) -> Floats:
    """What bytes of E4M3 (no infinities, NaN at the end) are."""
    exponent, fraction = ((values >> 3) & 15).astype(np.int32), (values & 7).astype(np.float64)
    size = np.where(exponent == 0, fraction / 8 * 2.0**-6, (1 + fraction / 8) * 2.0 ** (exponent - 7.0))
    size = np.where(values & 0x7F == 0x7F, np.nan, size)
    return np.where(values >> 7, -size, size).astype(np.float32)


E2M1 = np.array([0.0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])


def nibbles(pairs: Bytes) -> Bytes:
    """Values in order of [..., 16] bytes in Q4_0's order: the low ones, then the high ones."""
    return np.concatenate([pairs & 15, pairs >> 4], axis=-1)


def packed(values: Bytes) -> Bytes:
    """The bytes of [..., 32] nibbles in Q4_0's order."""
    return np.asarray(values[..., :16] | (values[..., 16:] << 4), np.uint8)


def dequantised(kind: int, rows: Bytes, factor: float = 1.0, *, rounded: bool = True) -> Floats:
    """The values of rows [count, bytes] of a form; without its last rounding what kernels compute with."""
    values, size = BYTES_OF[kind]
    blocks = rows.reshape(len(rows), -1, size)
    if kind == NVFP4:
        scale = e4m3(blocks[..., :2]) / np.float32(factor)
        products = E2M1[nibbles(blocks[..., 2:])] * np.repeat(scale, 16, axis=-1)
        return (bfloat(to_bfloat(products)) if rounded else products).reshape(len(rows), -1)
    bits = np.ascontiguousarray(blocks[..., :2]).view(np.uint16)
    runs = nibbles(blocks[..., 2:].reshape(*blocks.shape[:2], 4, 16)).reshape(*blocks.shape[:2], values)
    integers = runs.astype(np.float32) - 8
    if kind == W4_F16:
        products = integers * bits.view(np.float16).astype(np.float32)
        nearest = products.astype(np.float16).astype(np.float32)
    else:
        products = integers * bfloat(bits)
        nearest = bfloat(to_bfloat(products))
    return (nearest if rounded else products).reshape(len(rows), -1)


def quantised(kind: int, weights: Floats) -> tuple[Bytes, float]:
    """Rows of a form near the weights [count, columns], and the tensor's factor."""
    values, size = BYTES_OF[kind]
    blocks = weights.reshape(len(weights), -1, values)
    out = np.zeros((*blocks.shape[:2], size), np.uint8)
    if kind == NVFP4:
        groups = blocks.reshape(*blocks.shape[:2], 2, 16)
        factor = float(np.float32(448 * 6 / np.abs(weights).max()))
        wanted = np.abs(groups).max(-1) / 6 * factor
        table = e4m3(np.arange(127, dtype=np.uint8))
        scale = np.abs(wanted[..., None] - table).argmin(-1).astype(np.uint8)
        steps = np.maximum(e4m3(scale) / np.float32(factor), np.float32(1e-30))[..., None]
        nearest = np.abs((groups / steps)[..., None] - E2M1).argmin(-1).astype(np.uint8)
        out[..., :2], out[..., 2:] = scale, packed(nearest.reshape(*blocks.shape[:2], 32))
        return out.reshape(len(weights), -1), factor
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(7.5)
    bits = scale.astype(np.float16).view(np.uint16) if kind == W4_F16 else to_bfloat(scale)
    whole = np.clip(np.rint(blocks / np.maximum(scale, np.float32(1e-30))) + 8, 0, 15).astype(np.uint8)
    out[..., :2] = np.ascontiguousarray(bits).view(np.uint8)
    out[..., 2:] = packed(whole.reshape(*blocks.shape[:2], 4, 32)).reshape(*blocks.shape[:2], 64)
    return out.reshape(len(weights), -1), 1.0
