"""Every operation of the Qwen families against exact arithmetic in numpy, for whichever backend asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import reference
from tests.server.engine.hybrid_operations import HALVES, PAIRS, DeltaInputs, HybridOperations
from tests.server.engine.test_engine_operations import gaussian

Array = reference.Array


def angles(rope_dim: int) -> tuple[Array, Array]:
    angle = 1234 * 10000.0 ** (-np.arange(0, rope_dim, 2) / rope_dim)
    return np.cos(angle), np.sin(angle)


def turned(head: Array, style: int, cosine: Array, sine: Array) -> Array:
    half = len(cosine)
    order = np.arange(2 * half)
    if style == HALVES:  # as interleaved pairs, and back
        order = order.reshape(2, half).T.reshape(-1)
    result = head.copy()
    result[order] = reference.rotate(head[order][None], cosine, sine)[0]
    return result


@pytest.mark.parametrize("style", [PAIRS, HALVES], ids=["pairs", "halves"])
@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize(("head_dim", "rope_dim"), [(64, 64), (96, 20), (256, 64), (8, 2)])
def test_a_head_is_normed_and_turned(
    hybrid: HybridOperations, head_dim: int, rope_dim: int, normed: bool, style: int
) -> None:
    head, weight = gaussian(head_dim) * 30, gaussian(head_dim, seed=1)
    cosine, sine = angles(rope_dim)
    expected = head.astype(np.float64)
    if normed:
        expected = reference.rmsnorm(expected, weight.astype(np.float64), 1e-6)
    expected = turned(expected, style, cosine, sine)
    given = hybrid.head(
        style, head, weight if normed else None, 1e-6, cosine.astype(np.float32), sine.astype(np.float32)
    )
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_the_two_ways_to_turn_a_head_differ(hybrid: HybridOperations) -> None:
    head, (cosine, sine) = gaussian(64), (each.astype(np.float32) for each in angles(64))
    pairs, halves = (hybrid.head(style, head, None, 0.0, cosine, sine) for style in (PAIRS, HALVES))
    assert np.abs(pairs - halves).max() > 0.1


def test_sigmoid_mul(hybrid: HybridOperations) -> None:
    x, gate = gaussian(192), gaussian(192, seed=1) * 8
    gate[:4] = [-200, 200, 0, -0.0]
    expected = x.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64)))
    np.testing.assert_allclose(hybrid.sigmoid_mul(x, gate), expected, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize(("channels", "conv", "rows"), [(320, 4, 7), (64, 2, 1), (96, 8, 40)])
def test_conv1d_sees_the_rows_before(hybrid: HybridOperations, channels: int, conv: int, rows: int) -> None:
    x, weight = gaussian(conv - 1 + rows, channels), gaussian(channels, conv, seed=1)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), conv, axis=0)
    expected = reference.silu((windows * weight).sum(-1))
    np.testing.assert_allclose(hybrid.conv1d(x, weight), expected, rtol=1e-5, atol=1e-6)


SHAPES = {
    "a-key-head-each": (2, 2, 32, 32),
    "two-value-heads-a-key-head": (2, 4, 64, 32),
    "three-value-heads-a-key-head": (2, 6, 32, 64),
    "widest": (1, 1, 128, 128),
}


def delta_inputs(name: str, rows: int, *, grouped: bool = False) -> DeltaInputs:
    key_heads, value_heads, key_dim, value_dim = SHAPES[name]
    return DeltaInputs(
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        grouped,
        gaussian(rows, 2 * key_heads * key_dim + value_heads * value_dim),
        gaussian(rows, value_heads, seed=1) * 3 - 2,
        gaussian(rows, value_heads, seed=2) * 2,
        -np.exp(gaussian(value_heads, seed=3)),
        gaussian(value_heads, seed=4),
    )


def exact_delta(given: DeltaInputs) -> Array:
    """The rule as it is said, one position after the other."""
    rows, width = len(given.qkv), given.key_heads * given.key_dim
    qkv = given.qkv.astype(np.float64)
    q, k = (
        part.reshape(rows, given.key_heads, given.key_dim)
        for part in (qkv[:, :width], qkv[:, width : 2 * width])
    )
    v = qkv[:, 2 * width :].reshape(rows, given.value_heads, given.value_dim)
    q, k = (part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6) for part in (q, k))
    heads, group = np.arange(given.value_heads), given.value_heads // given.key_heads
    key_head = heads // group if given.grouped else heads % given.key_heads
    q, k = q[:, key_head] / np.sqrt(given.key_dim), k[:, key_head]
    decay = np.exp(given.decay * np.logaddexp(0, given.a.astype(np.float64) + given.dt))
    beta = 1 / (1 + np.exp(-given.b.astype(np.float64)))
    state = np.zeros((given.value_heads, given.key_dim, given.value_dim))
    out = np.empty((rows, given.value_heads, given.value_dim))
    for i in range(rows):
        state *= decay[i][:, None, None]
        error = v[i] - np.einsum("hkv,hk->hv", state, k[i])
        state += np.einsum("hk,hv->hkv", k[i], beta[i][:, None] * error)
        out[i] = np.einsum("hkv,hk->hv", state, q[i])
    return out


@pytest.mark.parametrize("grouped", [False, True], ids=["tiled", "grouped"])
@pytest.mark.parametrize("name", SHAPES)
def test_delta_is_the_recurrence(hybrid: HybridOperations, name: str, grouped: bool) -> None:
    rows = 70 if name == "widest" else 150
    given = delta_inputs(name, rows, grouped=grouped)
    expected = exact_delta(given)
    np.testing.assert_allclose(
        hybrid.delta(given, [rows]), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    "cuts",
    [[1] * 140, [64, 64, 12], [3, 61, 1, 63, 12], [50, 90], [63, 2, 62, 2, 11], [65, 1, 74]],
    ids=lambda cuts: f"{len(cuts)}-from-{cuts[0]}",
)
def test_delta_is_the_same_bytes_however_it_is_cut(hybrid: HybridOperations, cuts: list[int]) -> None:
    given = delta_inputs("two-value-heads-a-key-head", 140)
    assert hybrid.delta(given, cuts).tobytes() == hybrid.delta(given, [140]).tobytes()


def test_delta_keeps_what_does_not_decay_and_forgets_what_does(hybrid: HybridOperations) -> None:
    """Far beyond the first chunk: a head that decays by nothing, and one that decays at once."""
    rows = 200
    given = delta_inputs("a-key-head-each", rows)
    a = np.stack([np.full(rows, -60.0), np.full(rows, 60.0)], 1).astype(np.float32)
    given = replace(given, a=a, dt=np.zeros(2, np.float32), decay=np.full(2, -1.0, np.float32))
    expected, answer = exact_delta(given), hybrid.delta(given, [130, 70])
    np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())


def test_delta_of_zeros_is_zero(hybrid: HybridOperations) -> None:
    given = delta_inputs("a-key-head-each", 66)
    assert not hybrid.delta(replace(given, qkv=np.zeros_like(given.qkv)), [66]).any()


@pytest.mark.parametrize(("heads", "head_dim"), [(3, 32), (6, 64), (48, 128)])
def test_gated_norm_norms_each_head(hybrid: HybridOperations, heads: int, head_dim: int) -> None:
    x = gaussian(heads, head_dim) * np.float32(10.0) ** np.linspace(-2, 2, heads, dtype=np.float32)[:, None]
    weight, gate = gaussian(head_dim, seed=1), gaussian(heads, head_dim, seed=2) * 3
    normed = reference.rmsnorm(x.astype(np.float64), weight.astype(np.float64), 1e-6)
    expected = normed * reference.silu(gate.astype(np.float64))
    np.testing.assert_allclose(hybrid.gated_norm(x, weight, gate, 1e-6), expected, rtol=1e-5, atol=1e-7)
