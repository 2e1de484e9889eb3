"""Synthetic `qwen3` and `qwen35` models of a few thousand weights, as a GGUF holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gguf import GGUFWriter

from tests.server.engine.tiny import FULL, Floats, Maker, Tensors, TinyModel


@dataclass(frozen=True)
class TinyQwen3(TinyModel):
    """A model that norms each query and key head; they turn by halves."""

    @property
    def architecture(self) -> str:
        return "qwen3"

    def _vectors(self, make: Maker, index: int) -> dict[str, Floats]:
        norms = {f"attn_{name}_norm.weight": make.norm(self.head_dim) for name in ("q", "k")}
        return {**super()._vectors(make, index), **norms}


@dataclass(frozen=True)
class TinyQwen35(TinyModel):
    """A hybrid: gated delta rule, gated attention in each `interval`-th layer, and a layer to be skipped."""

    layers: int = 4
    interval: int = 2
    skipped: int = 1
    head_dim: int = 64
    rope_dim: int | None = 32
    sections: tuple[int, ...] = (6, 5, 5, 0)
    key_heads: int = 2
    value_heads: int = 6
    key_dim: int = 32
    value_dim: int = 32
    conv: int = 4

    @property
    def architecture(self) -> str:
        return "qwen35"

    @property
    def blocks(self) -> int:
        return self.layers + self.skipped

    def _describe(self, writer: GGUFWriter) -> None:
        super()._describe(writer)
        writer.add_nextn_predict_layers(self.skipped)
        writer.add_full_attention_interval(self.interval)
        writer.add_rope_dimension_sections(list(self.sections))
        writer.add_ssm_conv_kernel(self.conv)
        writer.add_ssm_state_size(self.key_dim)
        writer.add_ssm_group_count(self.key_heads)
        writer.add_ssm_time_step_rank(self.value_heads)
        writer.add_ssm_inner_size(self.value_heads * self.value_dim)

    def _full(self, index: int) -> bool:
        return (index + 1) % self.interval == 0

    def _matrices(self, index: int) -> dict[str, tuple[int, int]]:
        values = self.value_heads * self.value_dim
        if self._full(index):
            q_rows = 2 * self.heads * self.head_dim
            return {**self._attention_matrices(), "attn_q": (q_rows, self.width), **self._ffn_matrices()}
        return {
            "attn_qkv": (2 * self.key_heads * self.key_dim + values, self.width),
            "attn_gate": (values, self.width),
            "ssm_alpha": (self.value_heads, self.width),
            "ssm_beta": (self.value_heads, self.width),
            "ssm_out": (self.width, values),
            **self._ffn_matrices(),
        }

    def _vectors(self, make: Maker, index: int) -> dict[str, Floats]:
        norms = {f"{name}.weight": make.norm(self.width) for name in ("attn_norm", "post_attention_norm")}
        if self._full(index):
            return {**norms, **{f"attn_{name}_norm.weight": make.norm(self.head_dim) for name in ("q", "k")}}
        channels = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        return {
            **norms,
            "ssm_conv1d.weight": make.matrix(channels, self.conv) * 2,
            # Heads that forget within a few tokens and heads that hardly do.
            "ssm_a": -np.geomspace(0.01, 8.0, self.value_heads).astype(np.float32),
            "ssm_dt.bias": make.random.standard_normal(self.value_heads).astype(np.float32),
            "ssm_norm.weight": make.norm(self.value_dim),
        }

    def _tensors(self) -> Tensors:
        tensors = super()._tensors()
        for index in range(self.layers, self.layers + self.skipped):
            tensors[f"blk.{index}.nextn.eh_proj.weight"] = (
                Maker(self.seed).matrix(self.width, 2 * self.width),
                FULL,
            )
        return tensors
