"""Single operations of the Qwen families (`engine/assay_hybrid_ops.h`), one method each, on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from server.build import ensure_built
from tests.server.engine.operations import Floats, Operations

PAIRS, HALVES = 0, 1


@dataclass(frozen=True)
class DeltaInputs:
    """What a gated delta layer is given: rows of queries, keys and values, and of gates."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    grouped: bool  # value heads of one key head follow each other; else every key_heads-th is its
    qkv: Floats  # [rows, 2 * key_heads * key_dim + value_heads * value_dim]
    a: Floats  # [rows, value_heads]
    b: Floats
    decay: Floats  # [value_heads], below 0
    dt: Floats


def rope_row(
    rope_dim: int, base: float, sections: Sequence[int], positions: Sequence[int]
) -> tuple[Floats, Floats]:
    """Cosines and sines of a token at three positions."""
    cosine, sine = np.empty(rope_dim // 2, np.float32), np.empty(rope_dim // 2, np.float32)
    given = [np.array(sections, np.int32), np.array(positions, np.int32), cosine, sine]
    function = ctypes.CDLL(str(ensure_built().library)).assay_op_rope_row
    pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in given]
    assert function(rope_dim, ctypes.c_double(base), *pointers) == 0
    return cosine, sine


class HybridOperations(Operations):
    """One backend's operations; every method fails the test on a status other than 0."""

    def head(
        self, style: int, head: Floats, norm: Floats | None, epsilon: float, cosine: Floats, sine: Floats
    ) -> Floats:
        out = head.copy()
        self._call("head", style, out, len(out), norm, ctypes.c_float(epsilon), 2 * len(cosine), cosine, sine)
        return out

    def sigmoid_mul(self, x: Floats, gate: Floats) -> Floats:
        out = np.empty_like(x)
        self._call("sigmoid_mul", x, gate, len(x), out)
        return out

    def conv1d(self, x: Floats, weight: Floats) -> Floats:
        """Convolves every row that has all rows before it."""
        channels, conv = weight.shape
        out = np.empty((len(x) - conv + 1, channels), np.float32)
        self._call("conv1d", x, weight, len(out), channels, conv, out)
        return out

    def delta(self, given: DeltaInputs, cuts: Sequence[int]) -> Floats:
        """Returns [rows, value_heads, value_dim], fed in runs of so many rows."""
        rows = len(given.qkv)
        out = np.empty((rows, given.value_heads, given.value_dim), np.float32)
        lengths = np.array(cuts, np.int32)
        shape = (given.key_heads, given.value_heads, given.key_dim, given.value_dim, int(given.grouped))
        gates = (given.a, given.b, given.decay, given.dt)
        self._call("delta", *shape, given.qkv, *gates, rows, lengths, len(lengths), out)
        return out

    def gated_norm(self, x: Floats, weight: Floats, gate: Floats, epsilon: float) -> Floats:
        out = np.empty_like(x)
        self._call("gated_norm", x, weight, gate, *x.shape, ctypes.c_float(epsilon), out)
        return out
