"""Whole models from directories: they say what the same weights say in a GGUF file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType, GGUFWriter

from server.engine import Chunk, Engine
from tests.server.engine.tiny_checkpoint import QUANTISED, Floats, TinyCheckpoint

TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 72, 40)]
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
VECTORS = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
}


def logits(path: Path, isa: str = "plain") -> npt.NDArray[np.float32]:
    with Engine(path, threads=2, slots=1, isa=isa) as engine:
        return engine.step([Chunk(0, 0, TOKENS, "all")]).logits.copy()


def paired(matrix: Floats, heads: int) -> Floats:
    """The rows of a head in the order in which a GGUF of a `llama` has them: pairs that turn lie together."""
    rows, columns = matrix.shape
    parts = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return parts.swapaxes(1, 2).reshape(rows, columns)


def write_gguf(model: TinyCheckpoint, path: Path) -> Path:
    """The same model as a GGUF file of F32 values."""
    _, meant = model.tensors()
    writer = GGUFWriter(path, model.architecture)
    writer.add_block_count(model.layers)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.width)
    writer.add_feed_forward_length(model.ffn)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    tensors = {
        "token_embd.weight": meant["model.embed_tokens"],
        "output_norm.weight": meant["model.norm.weight"],
    }
    if not model.tied:
        tensors["output.weight"] = meant["lm_head"]
    for index in range(model.layers):
        here, there = f"model.layers.{index}.", f"blk.{index}."
        for module, name in NAMES.items():
            matrix = meant[here + module]
            if model.architecture == "llama" and name in ("attn_q", "attn_k"):
                matrix = paired(matrix, model.heads if name == "attn_q" else model.kv_heads)
            tensors[f"{there}{name}.weight"] = matrix
        for stored, name in VECTORS.items():
            if here + stored in meant:
                tensors[there + name] = meant[here + stored]
    for name, values in tensors.items():
        writer.add_tensor(name, values, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def near(found: npt.NDArray[np.float32], wanted: npt.NDArray[np.float32], bound: float) -> None:
    error = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert error.max() < bound, error.max()


@pytest.mark.parametrize("form", ["F32", "F16", "BF16", *QUANTISED])
def test_a_directory_says_what_its_gguf_says(form: str, tmp_path: Path) -> None:
    model = TinyCheckpoint(form)
    found = logits(model.write(tmp_path / "model"))
    wanted = logits(write_gguf(model, tmp_path / "model.gguf"))
    # 4-bit forms meet int8 activations; those of F32, F16 and BF16 are exact.
    near(found, wanted, 0.03 if form in QUANTISED else 1e-4)


def test_tied_heads_and_shards(tmp_path: Path) -> None:
    model = TinyCheckpoint("F32", tied=True)
    one = logits(model.write(tmp_path / "one"))
    many = logits(model.write(tmp_path / "many", shards=4, padding=3))
    np.testing.assert_array_equal(one, many)
    near(one, logits(write_gguf(model, tmp_path / "model.gguf")), 1e-4)


def test_the_metadata_is_what_a_gguf_would_say(tmp_path: Path) -> None:
    with Engine(TinyCheckpoint(architecture="llama").write(tmp_path), threads=1, slots=1) as engine:
        assert engine.metadata["general.architecture"] == "llama"
        assert engine.metadata["llama.block_count"] == 2
        assert engine.metadata["llama.rope.freq_base"] == 10000.0
        assert engine.context == 512
