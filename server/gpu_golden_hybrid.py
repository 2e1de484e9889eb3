"""The Qwen families' operations as cases for :mod:`server.gpu_golden`: heads, convolution, delta rule, gates.

Contract: as there. The delta rule is fixed to the last bit however its rows are cut,
so a case gives the outputs of several cuts, which have to be the same bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from server.gpu_golden import Arrays, Backend, Case, Floats

_PAIRS, _HALVES = 0, 1
_EPSILON = ctypes.c_float(1e-6)
CUTS = ((150,), (1,) * 70 + (80,), (63, 2, 64, 21))  # each of as many rows


def hybrid_cases(large: bool) -> Iterator[Case]:
    """Yields every operation; `large` adds the heads of a model of 27 billion parameters."""
    random = np.random.default_rng(12)

    def gaussian(*shape: int) -> Floats:
        return random.standard_normal(shape).astype(np.float32)

    for style in (_PAIRS, _HALVES):
        yield _head(style, gaussian(256) * 9, None, 64)
        yield _head(style, gaussian(96) * 9, gaussian(96), 20)
    yield _sigmoid(gaussian(192), gaussian(192) * 4)
    yield _conv1d(gaussian(3 + 40, 320), gaussian(320, 4))
    yield _gated_norm(gaussian(6, 64) * 3, gaussian(64), gaussian(6, 64) * 3)
    shapes = [(2, 6, 32, 64, 0), (2, 4, 64, 32, 1), *([(2, 6, 128, 128, 0)] if large else [])]
    for shape in shapes:
        yield _delta(shape, random)


def _head(style: int, head: Floats, norm: Floats | None, rope_dim: int) -> Case:
    angle = 1234 * 1e7 ** (-np.arange(0, rope_dim, 2) / rope_dim)
    cosine, sine = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def run(backend: Backend) -> Arrays:
        out = head.copy()
        backend.call("head", style, out, len(out), norm, _EPSILON, rope_dim, cosine, sine)
        return (out,)

    normed = "" if norm is None else ", normed"
    name = f"head {rope_dim} of {len(head)} by {'halves' if style == _HALVES else 'pairs'}{normed}"
    return Case(name, run, 1e-5)


def _sigmoid(x: Floats, gate: Floats) -> Case:
    def run(backend: Backend) -> Arrays:
        out = np.empty_like(x)
        backend.call("sigmoid_mul", x, gate, len(x), out)
        return (out,)

    return Case(f"sigmoid_mul {len(x)}", run, 1e-6)


def _conv1d(x: Floats, weight: Floats) -> Case:
    channels, conv = weight.shape
    rows = len(x) - conv + 1

    def run(backend: Backend) -> Arrays:
        out = np.empty((rows, channels), np.float32)
        backend.call("conv1d", x, weight, rows, channels, conv, out)
        return (out,)

    return Case(f"conv1d {rows} x {channels} over {conv}", run, 1e-5)


def _gated_norm(x: Floats, weight: Floats, gate: Floats) -> Case:
    def run(backend: Backend) -> Arrays:
        out = np.empty_like(x)
        backend.call("gated_norm", x, weight, gate, *x.shape, _EPSILON, out)
        return (out,)

    return Case(f"gated_norm {len(x)} x {x.shape[1]}", run, 1e-5)


def _delta(shape: tuple[int, int, int, int, int], random: np.random.Generator) -> Case:
    key_heads, value_heads, key_dim, value_dim, _ = shape
    rows = sum(CUTS[0])

    def gaussian(*size: int) -> Floats:
        return random.standard_normal(size).astype(np.float32)

    qkv = gaussian(rows, 2 * key_heads * key_dim + value_heads * value_dim)
    a, b = gaussian(rows, value_heads) * 3 - 2, gaussian(rows, value_heads) * 2
    decay, dt = -np.exp(gaussian(value_heads)), gaussian(value_heads)

    def run(backend: Backend) -> Arrays:
        outs = []
        for cuts in CUTS:
            out, lengths = np.empty((rows, value_heads, value_dim), np.float32), np.array(cuts, np.int32)
            backend.call("delta", *shape, qkv, a, b, decay, dt, rows, lengths, len(lengths), out)
            outs.append(out)
        return tuple(outs)

    return Case(f"delta {rows} x {value_heads} x {key_dim} x {value_dim}", run, 1e-4, same=True)
