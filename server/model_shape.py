"""The dimensions of public models, and the matrices and vectors that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The dimensions of a model; those of delta layers are 0 where it has none."""

    architecture: str
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_dim: int
    vocabulary: int
    context: int
    rope_base: float = 1e7
    epsilon: float = 1e-6
    interval: int = 1  # every how manieth layer is one of full attention
    key_heads: int = 0
    value_heads: int = 0
    delta_dim: int = 0  # of key and value heads
    conv: int = 0
    sections: tuple[int, ...] = ()
    tied: bool = False  # the embedding is the head too

    @property
    def channels(self) -> int:
        """What the convolution of a delta layer works on."""
        return (2 * self.key_heads + self.value_heads) * self.delta_dim

    def is_attention(self, layer: int) -> bool:
        """Whether a layer is one of full attention."""
        return (layer + 1) % self.interval == 0


SHAPES = {
    "qwen35-27b": Shape(
        *("qwen35", 64, 5120, 17408, 24, 4, 256, 64, 248320, 262144),
        interval=4,
        key_heads=16,
        value_heads=48,
        delta_dim=128,
        conv=4,
        sections=(11, 11, 10),
    ),
    "qwen3-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 128, 128, 151936, 40960, rope_base=1e6),
    "llama-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128, 128, 128256, 8192, rope_base=5e5, epsilon=1e-5),
}


def matrices(shape: Shape, layer: int) -> Iterator[tuple[str, int, int]]:
    """Yield name in a GGUF file, rows and columns of each matrix of a layer."""
    width = shape.width
    if shape.is_attention(layer):
        query, value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        yield "attn_q", query * (2 if shape.architecture == "qwen35" else 1), width
        yield "attn_k", value, width
        yield "attn_v", value, width
        yield "attn_output", width, query
    else:
        inner = shape.value_heads * shape.delta_dim
        yield "attn_qkv", shape.channels, width
        yield "attn_gate", inner, width
        yield "ssm_alpha", shape.value_heads, width
        yield "ssm_beta", shape.value_heads, width
        yield "ssm_out", width, inner
    yield "ffn_gate", shape.ffn, width
    yield "ffn_up", shape.ffn, width
    yield "ffn_down", width, shape.ffn


def vectors(shape: Shape, layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name in a GGUF file and shape, the last dimension first, of what a layer has besides."""
    yield "attn_norm.weight", (shape.width,)
    yield (
        ("post_attention_norm" if shape.architecture == "qwen35" else "ffn_norm") + ".weight",
        (shape.width,),
    )
    if not shape.is_attention(layer):
        yield "ssm_conv1d.weight", (shape.conv, shape.channels)
        yield "ssm_dt.bias", (shape.value_heads,)
        yield "ssm_a", (shape.value_heads,)
        yield "ssm_norm.weight", (shape.delta_dim,)
    elif shape.architecture != "llama":
        yield "attn_q_norm.weight", (shape.head_dim,)
        yield "attn_k_norm.weight", (shape.head_dim,)
