"""The gated delta rule of the `qwen35` architecture, one token after the other, in float64.

Contract: the recurrence as it is defined, with nothing of the engine's chunks: a
state S of each value head forgets (e^g), learns what it predicted wrong of this
token's value (beta), and is asked by the query:

    S <- e^g S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DeltaShape:
    """The numbers of a layer with the gated delta rule."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int  # positions that the convolution sees


def convolve(rows: Array, weights: Array) -> Array:
    """Returns SiLU of the causal convolution of [tokens, channels] by [channels, conv]."""
    taps = weights.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, rows.shape[1])), rows])
    total = sum(padded[tap : tap + len(rows)] * weights[:, tap] for tap in range(taps))
    return np.asarray(total / (1.0 + np.exp(-np.asarray(total))), np.float64)


def normed(x: Array) -> Array:
    """Returns x / sqrt(sum x^2 + 1e-6) over the last axis."""
    return np.asarray(x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6), np.float64)


def decay(alpha: Array, a: Array, bias: Array) -> Array:
    """Returns log decays [tokens, value heads] of the rows' alphas; `a` is negative."""
    return np.asarray(a * np.logaddexp(0.0, alpha + bias), np.float64)


def recur(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    """Returns o[tokens, heads, value_dim] of q and k [tokens, heads, key_dim], normed; q is scaled here."""
    state = np.zeros((q.shape[1], q.shape[2], v.shape[2]))
    out = np.empty_like(v)
    for token in range(len(q)):
        state *= np.exp(g[token])[:, None, None]
        wrong = v[token] - np.einsum("hkv,hk->hv", state, k[token])
        state += k[token][:, :, None] * (beta[token][:, None] * wrong)[:, None, :]
        out[token] = np.einsum("hkv,hk->hv", state, q[token]) / np.sqrt(q.shape[2])
    return out


def delta(
    rows: Array, alpha: Array, beta: Array, weights: Array, a: Array, bias: Array, shape: DeltaShape
) -> Array:
    """Returns o[tokens, value_heads, value_dim] of raw rows; value head h has key head h % key_heads."""
    tokens, width = len(rows), shape.key_heads * shape.key_dim
    q, k, v = np.split(convolve(rows, weights), [width, 2 * width], axis=1)
    repeat = (1, shape.value_heads // shape.key_heads, 1)
    q, k = (np.tile(normed(x.reshape(tokens, shape.key_heads, -1)), repeat) for x in (q, k))
    strength = 1.0 / (1.0 + np.exp(-beta))
    return recur(q, k, v.reshape(tokens, shape.value_heads, -1), decay(alpha, a, bias), strength)
