"""A `qwen35` model of random weights in a GGUF file, of any size: gated delta layers between attention.

Contract: as that of :class:`server.random_model.RandomModel`. Heads of the delta rule
forget at rates from a hundredth to eight times a position's; its other vectors are ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from server.gguf_header import F32, Q4_1, Q8_0, Value
from server.random_model import RandomModel

_DECAY = "ssm_a"


@dataclass(frozen=True)
class RandomHybrid(RandomModel):
    """The shape of the model; the defaults are a tiny one."""

    layers: int = 3
    heads: int = 2
    interval: int = 3  # every how manieth layer is one of attention
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 32
    value_dim: int = 32
    conv: int = 4  # positions that the convolution sees

    @property
    def matrix_parameters(self) -> int:
        """Weights that every token of a prompt meets (the head apart)."""
        return sum(rows * columns for layer in range(self.layers) for _, rows, columns in self._of(layer))

    def _metadata(self) -> dict[str, Value]:
        common = {key.replace("llama.", "qwen35."): value for key, value in super()._metadata().items()}
        pairs = self.head_dim // 8  # a quarter of each head turns
        return {
            **common,
            "general.architecture": "qwen35",
            "qwen35.rope.dimension_count": 2 * pairs,
            "qwen35.rope.dimension_sections": (pairs - pairs // 3 * 2, pairs // 3, pairs // 3, 0),
            "qwen35.full_attention_interval": self.interval,
            "qwen35.ssm.conv_kernel": self.conv,
            "qwen35.ssm.state_size": self.key_dim,
            "qwen35.ssm.group_count": self.key_heads,
            "qwen35.ssm.time_step_rank": self.value_heads,
            "qwen35.ssm.inner_size": self.value_heads * self.value_dim,
        }

    def _attends(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0

    @property
    def _channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def _of(self, layer: int) -> Iterator[tuple[str, int, int]]:
        """Yields name, rows and columns of a layer's matrices."""
        values = self.value_heads * self.value_dim
        if self._attends(layer):
            for name, rows, columns in self._matrices():
                yield name, 2 * rows if name == "attn_q" else rows, columns
            return
        yield "attn_qkv", self._channels, self.width
        yield "attn_gate", values, self.width
        yield "ssm_alpha", self.value_heads, self.width
        yield "ssm_beta", self.value_heads, self.width
        yield "ssm_out", self.width, values
        yield from (matrix for matrix in self._matrices() if matrix[0].startswith("ffn"))

    def _vectors(self, layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "attn_norm.weight", (self.width,)
        yield "post_attention_norm.weight", (self.width,)
        if self._attends(layer):
            yield "attn_q_norm.weight", (self.head_dim,)
            yield "attn_k_norm.weight", (self.head_dim,)
            return
        yield "ssm_conv1d.weight", (self.conv, self._channels)
        yield _DECAY, (self.value_heads,)
        yield "ssm_dt.bias", (self.value_heads,)
        yield "ssm_norm.weight", (self.value_dim,)

    def _tensors(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        yield "token_embd.weight", Q8_0.number, (self.width, self.vocabulary)
        yield "output_norm.weight", F32.number, (self.width,)
        for layer in range(self.layers):
            for name, shape in self._vectors(layer):
                yield f"blk.{layer}.{name}", F32.number, shape
            for name, rows, columns in self._of(layer):
                yield f"blk.{layer}.{name}.weight", Q4_1.number, (columns, rows)

    def _bytes(self, kind: int, shape: tuple[int, ...], index: int) -> Iterator[bytes]:
        name = list(self._tensors())[index][0]
        if name.endswith(_DECAY):
            yield (-np.geomspace(0.01, 8.0, math.prod(shape))).astype(np.float32).tobytes()
        else:
            yield from super()._bytes(kind, shape, index)
