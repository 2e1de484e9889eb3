"""A synthetic `llama` model of a few thousand weights, written with the `gguf` package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter

from tests.server.engine.kquants import quantize

Floats = npt.NDArray[np.float32]
Tensors = dict[str, tuple[Floats, GGMLQuantizationType]]
FULL = GGMLQuantizationType.F32


class Maker:
    """Random weights of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def matrix(self, rows: int, columns: int) -> Floats:
        """Weights that keep the size of what they are multiplied with."""
        return (self.random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def norm(self, width: int) -> Floats:
        """Weights about 1."""
        return (1.0 + 0.1 * self.random.standard_normal(width)).astype(np.float32)


@dataclass(frozen=True)
class TinyModel:
    """What to build; the defaults are a small, tied, 4-bit model."""

    kind: GGMLQuantizationType = GGMLQuantizationType.Q4_1  # of the layers' matrices
    embedding_kind: GGMLQuantizationType = GGMLQuantizationType.Q8_0
    vector_kind: GGMLQuantizationType = FULL  # of norms and other vectors
    tied: bool = True
    layers: int = 2
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 32
    ffn: int = 160
    vocabulary: int = 75
    context: int = 512
    rope_dim: int | None = None
    seed: int = 7

    @property
    def width(self) -> int:
        """The embedding length; no power of two by default."""
        return 96

    @property
    def architecture(self) -> str:
        """What the file calls itself."""
        return "llama"

    @property
    def blocks(self) -> int:
        """The layers that the file counts."""
        return self.layers

    def write(self, path: Path, architecture: str | None = None) -> None:
        """Writes the file, which may call itself another architecture."""
        writer = GGUFWriter(path, architecture or self.architecture)
        self._describe(writer)
        writer.add_token_list([f"t{index}" for index in range(self.vocabulary)])
        writer.add_bool("tiny.flag", True)
        writer.add_array("tiny.numbers", [1, 2, 3])
        for name, (values, kind) in self._tensors().items():
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def _describe(self, writer: GGUFWriter) -> None:
        writer.add_block_count(self.blocks)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.width)
        writer.add_feed_forward_length(self.ffn)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head_dim)
        writer.add_value_length(self.head_dim)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        writer.add_rope_dimension_count(self.head_dim if self.rope_dim is None else self.rope_dim)

    def _tensors(self) -> Tensors:
        make = Maker(self.seed)
        tensors: Tensors = {}
        tensors["token_embd.weight"] = (make.matrix(self.vocabulary, self.width) * 8, self.embedding_kind)
        for index in range(self.layers):
            for name, (rows, columns) in self._matrices(index).items():
                tensors[f"blk.{index}.{name}.weight"] = (make.matrix(rows, columns), self.kind)
            for name, values in self._vectors(make, index).items():
                tensors[f"blk.{index}.{name}"] = (values, self.vector_kind)
        tensors["output_norm.weight"] = (make.norm(self.width), self.vector_kind)
        if not self.tied:
            tensors["output.weight"] = (make.matrix(self.vocabulary, self.width) * 8, self.kind)
        return tensors

    def _matrices(self, index: int) -> dict[str, tuple[int, int]]:
        """Rows and columns of a layer's matrices."""
        return {**self._attention_matrices(), **self._ffn_matrices()}

    def _attention_matrices(self) -> dict[str, tuple[int, int]]:
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "attn_q": (q_width, self.width),
            "attn_k": (kv_width, self.width),
            "attn_v": (kv_width, self.width),
            "attn_output": (self.width, q_width),
        }

    def _ffn_matrices(self) -> dict[str, tuple[int, int]]:
        return {
            "ffn_gate": (self.ffn, self.width),
            "ffn_up": (self.ffn, self.width),
            "ffn_down": (self.width, self.ffn),
        }

    def _vectors(self, make: Maker, index: int) -> dict[str, Floats]:
        """A layer's float vectors by their whole names."""
        return {f"{name}.weight": make.norm(self.width) for name in ("attn_norm", "ffn_norm")}


@dataclass(frozen=True)
class WideModel(TinyModel):
    """A model all of whose rows are whole blocks of K-quants."""

    layers: int = 1
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512

    @property
    def width(self) -> int:
        return 256
