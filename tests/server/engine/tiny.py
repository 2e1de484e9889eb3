"""A synthetic `llama` model of a few thousand weights, written with the `gguf` package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize


@dataclass(frozen=True)
class TinyModel:
    """What to build; the defaults are a small, tied, 4-bit model."""

    kind: GGMLQuantizationType = GGMLQuantizationType.Q4_1  # of the layers' matrices
    embedding_kind: GGMLQuantizationType = GGMLQuantizationType.Q8_0
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

    def write(self, path: Path, architecture: str = "llama") -> None:
        """Writes the file."""
        writer = GGUFWriter(path, architecture)
        writer.add_block_count(self.layers)
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
        writer.add_token_list([f"t{index}" for index in range(self.vocabulary)])
        writer.add_bool("tiny.flag", True)
        writer.add_array("tiny.numbers", [1, 2, 3])
        for name, (values, kind) in self._tensors().items():
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def _tensors(self) -> dict[str, tuple[npt.NDArray[np.float32], GGMLQuantizationType]]:
        random = np.random.default_rng(self.seed)
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {
            "attn_q": (q_width, self.width),
            "attn_k": (kv_width, self.width),
            "attn_v": (kv_width, self.width),
            "attn_output": (self.width, q_width),
            "ffn_gate": (self.ffn, self.width),
            "ffn_up": (self.ffn, self.width),
            "ffn_down": (self.width, self.ffn),
        }
        full = GGMLQuantizationType.F32
        tensors: dict[str, tuple[npt.NDArray[np.float32], GGMLQuantizationType]] = {}

        def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
            return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

        def norm() -> npt.NDArray[np.float32]:
            return (1.0 + 0.1 * random.standard_normal(self.width)).astype(np.float32)

        tensors["token_embd.weight"] = (matrix(self.vocabulary, self.width) * 8, self.embedding_kind)
        for index in range(self.layers):
            for name, (rows, columns) in shapes.items():
                tensors[f"blk.{index}.{name}.weight"] = (matrix(rows, columns), self.kind)
            for name in ("attn_norm", "ffn_norm"):
                tensors[f"blk.{index}.{name}.weight"] = (norm(), full)
        tensors["output_norm.weight"] = (norm(), full)
        if not self.tied:
            tensors["output.weight"] = (matrix(self.vocabulary, self.width) * 8, self.kind)
        return tensors
