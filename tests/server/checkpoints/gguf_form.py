"""The float checkpoints as GGUF files: names and transforms as llama.cpp's own converter has them.

`llama`: query and key rows of a head are taken apart into pairs, since GGUF's rope turns neighbours.
`qwen35`: norms but the gated one hold their 1, `ssm_a` is -exp(A_log), the convolution has no middle axis,
and value heads are dealt out (the v-th head of every key head, then the next v) instead of grouped by key
head: rows of V, Z, alpha and beta, columns of the output matrix, and what there is one of a value head.
`test_engine_golden.py` holds the files against llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter

from tests.server.engine.kquants import quantize

Floats = npt.NDArray[np.float32]
Values = Mapping[str, Floats]

_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
}
_WHOLE = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_NEXTN = {  # of the layer that predicts one token further
    "mtp.fc.weight": "nextn.eh_proj.weight",
    "mtp.pre_fc_norm_embedding.weight": "nextn.enorm.weight",
    "mtp.pre_fc_norm_hidden.weight": "nextn.hnorm.weight",
    "mtp.norm.weight": "nextn.shared_head_norm.weight",
}


def write_gguf(config: Mapping[str, object], values: Values, path: Path, kind: Kind = Kind.F32) -> None:
    """Write a checkpoint as a GGUF file.

    Args:
        config: config.json, as the public implementation saves it.
        values: Of every tensor, by the public implementation's name.
        path: The file.
        kind: Of the matrices.
    """
    text = config.get("text_config", config)
    assert isinstance(text, Mapping)
    arch = {"llama": "llama", "qwen3": "qwen3", "qwen3_5_text": "qwen35"}[str(text["model_type"])]
    writer = GGUFWriter(path, arch)
    _metadata(writer, text, arch)
    for name, array in gguf_values(text, values, arch).items():
        if array.ndim == 1 or name.endswith("conv1d.weight"):
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_values(text: Mapping[str, object], values: Values, arch: str) -> dict[str, Floats]:
    """Every tensor by its GGUF name, transformed; vision, which such a file lacks, is left out."""
    return {
        gguf_name(text, name): _transformed(text, name, value, arch)
        for name, value in values.items()
        if ".visual." not in name
    }


def gguf_name(text: Mapping[str, object], name: str) -> str:
    """What GGUF calls a tensor; the layers past the last one predict further tokens."""
    layers = int(str(text["num_hidden_layers"]))
    plain = name.removeprefix("model.").removeprefix("language_model.")
    if plain in _NEXTN:
        return f"blk.{layers}.{_NEXTN[plain]}"
    if plain in _WHOLE:
        return _WHOLE[plain]
    _, index, rest = plain.replace("mtp.layers.0.", f"layers.{layers}.").split(".", 2)
    second = rest == "post_attention_layernorm.weight" and "linear_num_key_heads" in text
    return f"blk.{index}.{'post_attention_norm.weight' if second else _LAYER[rest]}"


def _transformed(text: Mapping[str, object], name: str, value: Floats, arch: str) -> Floats:
    if arch == "llama" and ("self_attn.q_proj" in name or "self_attn.k_proj" in name):
        heads = int(str(text["num_attention_heads" if ".q_proj" in name else "num_key_value_heads"]))
        return np.ascontiguousarray(
            value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        )
    if arch != "qwen35":
        return value
    if "linear_attn." not in name:
        return value + np.float32(1.0) if name.endswith("norm.weight") or "_norm_" in name else value
    keys, key_dim = (int(str(text[f"linear_{key}"])) for key in ("num_key_heads", "key_head_dim"))
    heads, value_dim = (int(str(text[f"linear_{key}"])) for key in ("num_value_heads", "value_head_dim"))
    order = np.arange(heads).reshape(keys, heads // keys).T.reshape(-1)  # of value heads: dealt out
    wide = (order[:, None] * value_dim + np.arange(value_dim)).reshape(-1)
    before = np.arange(2 * keys * key_dim)
    match name.partition("linear_attn.")[2]:
        case "in_proj_qkv.weight":
            value = value[np.concatenate([before, len(before) + wide])]
        case "conv1d.weight":
            value = value[np.concatenate([before, len(before) + wide]), 0]
        case "in_proj_z.weight":
            value = value[wide]
        case "out_proj.weight":
            value = value[:, wide]
        case "in_proj_a.weight" | "in_proj_b.weight" | "dt_bias":
            value = value[order]
        case "A_log":
            value = -np.exp(value[order])
    return np.ascontiguousarray(value)


def _metadata(writer: GGUFWriter, text: Mapping[str, object], arch: str) -> None:
    def number(name: str) -> int:
        return int(str(text[name]))

    rope = text["rope_parameters"]
    assert isinstance(rope, Mapping)
    nextn = int(str(text.get("mtp_num_hidden_layers", 0)))
    writer.add_block_count(number("num_hidden_layers") + nextn)
    writer.add_context_length(number("max_position_embeddings"))
    writer.add_embedding_length(number("hidden_size"))
    writer.add_feed_forward_length(number("intermediate_size"))
    writer.add_head_count(number("num_attention_heads"))
    writer.add_head_count_kv(number("num_key_value_heads"))
    writer.add_key_length(number("head_dim"))
    writer.add_value_length(number("head_dim"))
    writer.add_layer_norm_rms_eps(float(str(text["rms_norm_eps"])))
    writer.add_rope_freq_base(float(str(rope["rope_theta"])))
    turned = number("head_dim") * float(str(rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_dimension_count(int(turned))
    writer.add_vocab_size(number("vocab_size"))
    writer.add_tokenizer_model("no_vocab")
    writer.add_token_list([f"t{index}" for index in range(number("vocab_size"))])
    if arch != "qwen35":
        return
    if nextn:
        writer.add_nextn_predict_layers(nextn)
    writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    writer.add_ssm_conv_kernel(number("linear_conv_kernel_dim"))
    writer.add_ssm_state_size(number("linear_key_head_dim"))
    writer.add_ssm_group_count(number("linear_num_key_heads"))
    writer.add_ssm_time_step_rank(number("linear_num_value_heads"))
    writer.add_ssm_inner_size(number("linear_num_value_heads") * number("linear_value_head_dim"))
    writer.add_full_attention_interval(number("full_attention_interval"))
