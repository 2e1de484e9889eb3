"""The `llama`, `qwen3` and `qwen35` architectures over dequantised weights: what exact arithmetic answers.

Contract: weights are read and dequantised by the `gguf` package (not by the
code under test); matrix products are float32, everything between them float64,
and no activation, key or value is rounded further. That is exact beside what is
judged by it: int8 activations are off by ten thousand times as much. It is slow
and keeps every weight as float32: for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.quants import dequantize

from bench.reference_delta import DeltaShape, delta

Array = npt.NDArray[np.float64]

_QUERIES = 256  # whose scores are in memory together, [heads, queries, positions]


@dataclass(frozen=True)
class Shape:
    """The numbers of a model's architecture."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_dim: int
    rope_base: float
    epsilon: float
    halves: bool  # heads turn i with i + rope_dim / 2, not 2i with 2i + 1
    gated: bool  # attn_q has a gate behind each head's query
    delta: DeltaShape | None  # of the layers that are no full attention


class Reference:
    """A model's exact next-token logits."""

    def __init__(self, path: Path) -> None:
        """Reads every tensor of a GGUF file."""
        reader = GGUFReader(path)
        self._tensors = {
            tensor.name: np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
            for tensor in reader.tensors
        }

        architecture = str(reader.fields["general.architecture"].contents())

        def field(name: str, default: object = None) -> object:
            entry = reader.fields.get(f"{architecture}.{name}")
            return default if entry is None else entry.contents()

        def number(name: str, default: int | None = None) -> int:
            return int(str(field(name, default)))

        heads = number("attention.head_count")
        head_dim = number("attention.key_length", number("embedding_length") // heads)
        value_heads = number("ssm.time_step_rank", 1)
        self.shape = Shape(
            layers=number("block_count") - number("nextn_predict_layers", 0),
            heads=heads,
            kv_heads=number("attention.head_count_kv", heads),
            head_dim=head_dim,
            rope_dim=number("rope.dimension_count", head_dim),
            rope_base=float(str(field("rope.freq_base", 10000.0))),
            epsilon=float(str(field("attention.layer_norm_rms_epsilon"))),
            halves=architecture != "llama",
            gated=architecture == "qwen35",
            delta=None
            if architecture != "qwen35"
            else DeltaShape(
                key_heads=number("ssm.group_count"),
                value_heads=value_heads,
                key_dim=number("ssm.state_size"),
                value_dim=number("ssm.inner_size") // value_heads,
                conv=number("ssm.conv_kernel"),
            ),
        )

    def logits(self, tokens: npt.NDArray[np.int64]) -> Array:
        """Returns the logits after every token of one sequence, [tokens, vocabulary]."""
        x = self._tensors["token_embd.weight"][tokens].astype(np.float64)
        for index in range(self.shape.layers):
            h = self._norm(x, f"blk.{index}.attn_norm")
            full = f"blk.{index}.attn_q.weight" in self._tensors
            x = x + (self._attention(h, index) if full else self._delta(h, index))
            qwen35 = f"blk.{index}.post_attention_norm.weight" in self._tensors
            h = self._norm(x, f"blk.{index}.{'post_attention_norm' if qwen35 else 'ffn_norm'}")
            gated = silu(self._linear(h, f"blk.{index}.ffn_gate")) * self._linear(h, f"blk.{index}.ffn_up")
            x = x + self._linear(gated, f"blk.{index}.ffn_down")
        head = "output" if "output.weight" in self._tensors else "token_embd"
        return self._linear(self._norm(x, "output_norm"), head)

    def _attention(self, h: Array, index: int) -> Array:
        shape = self.shape
        q = self._heads(h, f"blk.{index}.attn_q", shape.heads)
        k = self._heads(h, f"blk.{index}.attn_k", shape.kv_heads)
        v = self._heads(h, f"blk.{index}.attn_v", shape.kv_heads)
        q, gate = (q[..., : shape.head_dim], q[..., shape.head_dim :]) if shape.gated else (q, None)
        if f"blk.{index}.attn_q_norm.weight" in self._tensors:
            q, k = self._norm(q, f"blk.{index}.attn_q_norm"), self._norm(k, f"blk.{index}.attn_k_norm")
        cosine, sine = _angles(shape, len(h))
        turn = rotate_halves if shape.halves else rotate
        q, k = turn(q, cosine, sine), turn(k, cosine, sine)
        group = shape.heads // shape.kv_heads
        attended = causal(q, np.repeat(k, group, 0), np.repeat(v, group, 0))
        if gate is not None:
            attended = attended / (1.0 + np.exp(-gate))
        return self._linear(attended.transpose(1, 0, 2).reshape(len(h), -1), f"blk.{index}.attn_output")

    def _delta(self, h: Array, index: int) -> Array:
        def vector(name: str) -> Array:
            return self._tensors[f"blk.{index}.{name}"].astype(np.float64)

        rows, z, alpha, beta = (
            self._linear(h, f"blk.{index}.{name}")
            for name in ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta")
        )
        if self.shape.delta is None:
            raise ValueError(f"layer {index} has no attn_q, and the architecture no other kind of layer")
        out = delta(
            rows,
            alpha,
            beta,
            vector("ssm_conv1d.weight"),
            vector("ssm_a"),
            vector("ssm_dt.bias"),
            self.shape.delta,
        )
        gated = self._norm(out, f"blk.{index}.ssm_norm") * silu(z.reshape(out.shape))
        return self._linear(gated.reshape(len(h), -1), f"blk.{index}.ssm_out")

    def _linear(self, x: Array, name: str) -> Array:
        product: Array = (x.astype(np.float32) @ self._tensors[f"{name}.weight"].T).astype(np.float64)
        return product

    def _norm(self, x: Array, name: str) -> Array:
        return rmsnorm(x, self._tensors[f"{name}.weight"].astype(np.float64), self.shape.epsilon)

    def _heads(self, x: Array, name: str, heads: int) -> Array:
        return self._linear(x, name).reshape(len(x), heads, -1).transpose(1, 0, 2)


def rmsnorm(x: Array, weight: Array, epsilon: float) -> Array:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight over the last axis."""
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight, np.float64)


def silu(x: Array) -> Array:
    """Returns x / (1 + e^-x)."""
    return x / (1.0 + np.exp(-x))


def rotate(x: Array, cosine: Array, sine: Array) -> Array:
    """Rotates the interleaved pairs of [heads, tokens, head_dim] by [tokens, rope_dim / 2] angles."""
    width = 2 * cosine.shape[-1]
    result = x.copy()
    a, b = x[..., 0:width:2], x[..., 1:width:2]
    result[..., 0:width:2] = a * cosine - b * sine
    result[..., 1:width:2] = a * sine + b * cosine
    return result


def rotate_halves(x: Array, cosine: Array, sine: Array) -> Array:
    """Rotates pairs (i, i + rope_dim / 2) of [heads, tokens, head_dim] by [tokens, rope_dim / 2] angles."""
    half = cosine.shape[-1]
    result = x.copy()
    a, b = x[..., :half], x[..., half : 2 * half]
    result[..., :half] = a * cosine - b * sine
    result[..., half : 2 * half] = a * sine + b * cosine
    return result


def causal(q: Array, k: Array, v: Array) -> Array:
    """Returns the attention of each query over the positions up to its own, some queries at a time."""
    parts = []
    for first in range(0, q.shape[1], _QUERIES):
        end = min(first + _QUERIES, q.shape[1])
        hidden = np.arange(end) > np.arange(first, end)[:, None]
        parts.append(attention(q[:, first:end], k[:, :end], v[:, :end], hidden))
    return np.concatenate(parts, axis=1)


def attention(q: Array, k: Array, v: Array, hidden: npt.NDArray[np.bool_]) -> Array:
    """Returns softmax(q k / sqrt(head_dim)) v, [heads, tokens, head_dim]; hidden[query, key] weighs 0."""
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights @ v / weights.sum(-1, keepdims=True), np.float64)


def _angles(shape: Shape, positions: int) -> tuple[Array, Array]:
    frequency = shape.rope_base ** (-np.arange(0, shape.rope_dim, 2) / shape.rope_dim)
    angle = np.arange(positions)[:, None] * frequency[None, :]
    return np.cos(angle), np.sin(angle)
