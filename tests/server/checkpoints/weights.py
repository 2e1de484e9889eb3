"""The numbers of the tiny checkpoints: a pure function of a model's name and a tensor's name and shape.

So the float checkpoints need no megabytes of noise in Git: `make.py` gives these values to the public model
classes and records what they answer, and a test makes the same checkpoint again from the committed table of
names, shapes and digests. Only raw bits of PCG64, whose stream numpy promises never to change, and exact sums
of them are used. Every value is one of bfloat16, so that one golden answer holds for F32 and for BF16 files.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_PIECES = 4  # of 16 bits, whose sum is near enough to normal


def draw(model: str, name: str, shape: tuple[int, ...]) -> Floats:
    """The values of one tensor, float32 but each of them one of bfloat16.

    Args:
        model: The checkpoint's name, so that no two share weights.
        name: The tensor's name in the public implementation, which says what it is for.
        shape: As the public implementation has it.
    """
    normal = _normal(f"{model}/{name}", math.prod(shape)).reshape(shape)
    return to_bfloat16(_spread(name, shape, normal).astype(np.float32))


def to_bfloat16(values: Floats) -> Floats:
    """Round float32 to the nearest bfloat16, ties to even, kept as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).reshape(values.shape)


def bfloat16_bytes(values: Floats) -> bytes:
    """The bytes of a bfloat16 tensor; the values are of that type already."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits >> 16).astype("<u2").tobytes()


def _normal(seed: str, count: int) -> npt.NDArray[np.float64]:
    key = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16], "little")
    words = np.random.PCG64(key).random_raw(count)
    total = sum((words >> np.uint64(16 * piece)) & np.uint64(0xFFFF) for piece in range(_PIECES))
    centred = np.asarray(total, np.float64) - _PIECES * 65535 / 2
    return np.asarray(centred / (65536 * math.sqrt(_PIECES / 12)), np.float64)


def _spread(name: str, shape: tuple[int, ...], normal: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What a trained model's tensor of this name looks like, roughly; nothing may be all alike."""
    if name.endswith("A_log"):
        return 1.5 * normal - 2.0  # some heads forget in a few tokens, some in hundreds
    if name.endswith("dt_bias"):
        return 0.5 * normal - 1.0
    if name.endswith("conv1d.weight"):
        return normal / math.sqrt(shape[-1])
    if name.endswith("norm.weight") or "layernorm" in name or "norm_" in name or len(shape) == 1:
        return 0.1 * normal  # what is added to it (1 or nothing) is the architecture's business: models.py
    if "embed_tokens" in name:
        return 0.1 * normal
    gain = 3.0 if "lm_head" in name else 1.0
    return gain * normal / math.sqrt(math.prod(shape[1:]))
