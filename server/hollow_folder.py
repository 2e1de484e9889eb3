"""Hollow models as directories of safetensors files: W4A16 of group 128, as compressed-tensors packs it."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

from server.model_shape import Shape, matrices, vectors

FORMS = ("w4a16", "w4a16-head")
_GROUP = 128
_BYTES = {"BF16": 2, "I32": 4, "I64": 8}

# GGUF's names of matrices and vectors, and a safetensors author's.
_MODULES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_out": "linear_attn.out_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_norm.weight": "linear_attn.norm.weight",
}
_UNPACKED = ("ssm_alpha", "ssm_beta")  # of too few rows to be worth it


def write_folder(shape: Shape, path: Path, *, packed_head: bool) -> None:
    """Write the directory."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(_config(shape), indent=1) + "\n", encoding="utf-8")
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    filled: dict[str, bytes] = {}

    def matrix(module: str, rows: int, columns: int, *, packed: bool) -> None:
        if not packed:
            tensors[f"{module}.weight"] = ("BF16", (rows, columns))
            return
        tensors[f"{module}.weight_packed"] = ("I32", (rows, columns // 8))
        tensors[f"{module}.weight_scale"] = ("BF16", (rows, columns // _GROUP))
        tensors[f"{module}.weight_shape"] = ("I64", (2,))
        filled[f"{module}.weight_shape"] = struct.pack("<2q", rows, columns)

    for layer in range(shape.layers):
        here = f"model.layers.{layer}."
        for name, rows, columns in matrices(shape, layer):
            matrix(here + _MODULES[name], rows, columns, packed=name not in _UNPACKED)
        for name, size in vectors(shape, layer):
            kept = (size[1], 1, size[0]) if name == "ssm_conv1d.weight" else size
            tensors[here + _TENSORS[name]] = ("BF16", kept)
    tensors["model.embed_tokens.weight"] = ("BF16", (shape.vocabulary, shape.width))
    tensors["model.norm.weight"] = ("BF16", (shape.width,))
    if not shape.tied:
        matrix("lm_head", shape.vocabulary, shape.width, packed=packed_head)
    _write_tensors(path / "model.safetensors", tensors, filled)


def _write_tensors(
    path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], filled: Mapping[str, bytes]
) -> None:
    header: dict[str, object] = {}
    begins, end = {}, 0
    for name, (kind, size) in tensors.items():
        begins[name], end = end, end + math.prod(size) * _BYTES[kind]
        header[name] = {"dtype": kind, "shape": list(size), "data_offsets": [begins[name], end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
        for name, data in filled.items():
            file.seek(8 + len(text) + begins[name])
            file.write(data)


def _config(shape: Shape) -> dict[str, object]:
    kinds = [
        "full_attention" if shape.is_attention(index) else "linear_attention" for index in range(shape.layers)
    ]
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": shape.rope_base}
    config: dict[str, object] = {
        "model_type": "qwen3_5_text" if shape.architecture == "qwen35" else shape.architecture,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.width,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.epsilon,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "rope_parameters": rope,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "symmetric": True,
                        "strategy": "group",
                        "group_size": _GROUP,
                    },
                }
            },
        },
    }
    if shape.conv:
        rope |= {
            "partial_rotary_factor": shape.rope_dim / shape.head_dim,
            "mrope_interleaved": True,
            "mrope_section": list(shape.sections),
        }
        config |= {
            "layer_types": kinds,
            "linear_conv_kernel_dim": shape.conv,
            "linear_num_key_heads": shape.key_heads,
            "linear_num_value_heads": shape.value_heads,
            "linear_key_head_dim": shape.delta_dim,
            "linear_value_head_dim": shape.delta_dim,
        }
    return config
