"""A directory as Hugging Face's libraries write it, read as a model: `config.json` and safetensors files.

Contract: :func:`read` returns what the engine is told of such a model (:class:`Checkpoint`): metadata and
tensors under the names that GGUF has for them, the tensors where and as they lie, nothing converted. Served
are the architectures `llama`, `qwen3` and the text part of `qwen3_5`; what a field or a tensor says that is
not served is an error that names it, never ignored, since it would be silently another model. Layers that
predict further tokens and the eyes of a model that also sees are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from server.checkpoint_forms import Form, Forms, Source, read_form
from server.fields import Fields
from server.safetensors import INDEX, CheckpointError, read_json, stored_tensors, tensor_files
from server.vocabulary import shown

CONFIG = "config.json"
# What decides how a directory answers, beside the files of its tensors.
_BESIDE = (
    *(CONFIG, INDEX),
    *("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"),
)

Value = str | bool | int | float | list[int]

# `model_type` of config.json: what GGUF calls the architecture.
ARCHITECTURES = {"llama": "llama", "qwen3": "qwen3", "qwen3_5_text": "qwen35", "qwen3_5": "qwen35"}

# Matrices and vectors of a layer: their module or tensor, and GGUF's name.
_MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_HEAD_NORMS = {
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
}
_DELTA = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.out_proj": "ssm_out",
}
_DELTA_VECTORS = {
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm.weight": "ssm_norm.weight",
}
# Tensors that are there for what is not served here, or that follow from config.json.
_LEFT_OUT = re.compile(
    r"mtp\.|(model\.)?visual\.|model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as the engine is told of it."""

    folder: Path
    metadata: Mapping[str, Value]  # by GGUF's keys
    tensors: tuple[Source, ...]
    form: Form  # how its matrices are quantised
    kind: str  # for the identity: the form, or the type of its matrices


def read(folder: Path) -> Checkpoint:
    """Return the model of a directory; CheckpointError says why there is none."""
    whole = Fields(read_json(folder / CONFIG), str(folder / CONFIG))
    kind = whole.text("model_type")
    architecture = ARCHITECTURES.get(kind)
    if architecture is None:
        raise whole.wrong("model_type", f"which is not served ({', '.join(ARCHITECTURES)} are)")
    config = whole.table("text_config") if kind == "qwen3_5" else whole
    form = read_form(whole if whole.has("quantization_config") else config)
    stored = stored_tensors(folder)
    metadata = _metadata(architecture, config, len(stored))
    tied = whole.flag("tie_word_embeddings", config.flag("tie_word_embeddings", False))
    forms = Forms(stored, form)
    tensors = tuple(_tensors(architecture, metadata, forms, tied))
    for name in forms.left():
        if not _LEFT_OUT.match(name) and not (tied and name == "lm_head.weight"):
            raise CheckpointError(f"tensor {shown(name)} has no place in the architecture as it is served")
    types = sorted({source.values.dtype for source in tensors if source.rows > 1 and source.scales is None})
    return Checkpoint(folder, metadata, tensors, form, form.name or " + ".join(types))


def model_files(folder: Path) -> tuple[Path, ...]:
    """Return every file of a directory that decides how it answers, sorted by name.

    Raises:
        CheckpointError: one of them is a pipe, a device or the like, which could keep a reader for ever.
    """
    beside = (folder / name for name in _BESIDE)
    found = tuple(sorted((*(path for path in beside if path.exists()), *tensor_files(folder))))
    for path in found:
        if not path.is_file():
            raise CheckpointError(f"{path} is not a regular file")
    return found


def _metadata(architecture: str, config: Fields, tensors: int) -> dict[str, Value]:
    config.must_be("hidden_act", "silu")
    config.must_be("attention_bias", False)
    config.must_be("mlp_bias", False)
    config.must_be("use_sliding_window", False)
    layers = config.integer("num_hidden_layers")
    if layers > tensors:
        raise config.wrong("num_hidden_layers", f"more than the {tensors} tensors")
    heads, width = config.integer("num_attention_heads"), config.integer("hidden_size")
    defaults = {"llama": max(width // heads, 1), "qwen3": 128, "qwen35": 256}
    head_dim = config.integer("head_dim", defaults[architecture])
    values: dict[str, Value] = {
        "block_count": layers,
        "context_length": config.integer("max_position_embeddings"),
        "embedding_length": width,
        "feed_forward_length": config.integer("intermediate_size"),
        "attention.head_count": heads,
        "attention.head_count_kv": config.integer("num_key_value_heads", heads),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.real("rms_norm_eps"),
        **_rope(architecture, config, head_dim),
        **(_delta(config, layers) if architecture == "qwen35" else {}),
    }
    return {"general.architecture": architecture} | {f"{architecture}.{key}": v for key, v in values.items()}


def _rope(architecture: str, config: Fields, head_dim: int) -> dict[str, Value]:
    # One object since transformers 5; before it a base beside an object for scaling.
    rope = config.table("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
    for name in ("rope_type", "type"):
        kind = rope.text(name, "default")
        if kind not in ("default", "mrope"):
            raise rope.wrong(name, "and scaled positions are not served")
    part = 0.25 if architecture == "qwen35" else 1.0
    part = rope.real("partial_rotary_factor", config.real("partial_rotary_factor", part))
    values: dict[str, Value] = {
        "rope.freq_base": rope.real("rope_theta", config.real("rope_theta", 10000.0)),
        "rope.dimension_count": int(head_dim * part) if 0 < part <= 1 else 0,
    }
    if architecture == "qwen35":
        rope.must_be("mrope_interleaved", True)
        sections = rope.items("mrope_section") or [11, 11, 10]
        if len(sections) > 3 or not all(type(item) is int and 0 <= item <= head_dim for item in sections):
            raise rope.wrong("mrope_section", "no list of up to three numbers of pairs")
        values["rope.dimension_sections"] = [item for item in sections if isinstance(item, int)]
    return values


def _delta(config: Fields, layers: int) -> dict[str, Value]:
    value_heads = config.integer("linear_num_value_heads")
    return {
        "full_attention_interval": _interval(config, layers),
        "ssm.conv_kernel": config.integer("linear_conv_kernel_dim"),
        "ssm.group_count": config.integer("linear_num_key_heads"),
        "ssm.time_step_rank": value_heads,
        "ssm.state_size": config.integer("linear_key_head_dim"),
        "ssm.inner_size": value_heads * config.integer("linear_value_head_dim"),
    }


def _interval(config: Fields, layers: int) -> int:
    """Every how manieth layer is one of full attention."""
    if not config.has("layer_types"):
        return config.integer("full_attention_interval", 4)
    kinds = config.items("layer_types")
    interval = kinds.index("full_attention") + 1 if "full_attention" in kinds else layers + 1
    regular = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)]
    if kinds != regular:
        raise config.wrong("layer_types", "which do not repeat regularly over all layers")
    return interval


def _tensors(architecture: str, metadata: Mapping[str, Value], forms: Forms, tied: bool) -> Iterator[Source]:
    prefix = "model.language_model." if forms.has("model.language_model.norm.weight") else "model."
    yield forms.plain(f"{prefix}embed_tokens.weight", "token_embd.weight")
    yield forms.plain(f"{prefix}norm.weight", "output_norm.weight")
    if not tied:
        yield forms.matrix("lm_head", "output.weight")
    interval = metadata.get(f"{architecture}.full_attention_interval", 1)
    layers = metadata[f"{architecture}.block_count"]
    if not isinstance(interval, int) or not isinstance(layers, int):
        raise TypeError("the metadata made here has whole numbers")
    after = "post_attention_norm.weight" if architecture == "qwen35" else "ffn_norm.weight"
    for index in range(layers):
        modules, vectors = dict(_MLP), {"input_layernorm.weight": "attn_norm.weight"}
        vectors["post_attention_layernorm.weight"] = after
        if (index + 1) % interval == 0:
            modules |= _ATTENTION
            vectors |= _HEAD_NORMS if architecture != "llama" else {}
        else:
            modules |= _DELTA
            vectors |= _DELTA_VECTORS
        here, there = f"{prefix}layers.{index}.", f"blk.{index}."
        for module, name in modules.items():
            yield forms.matrix(here + module, f"{there}{name}.weight")
        for stored, name in vectors.items():
            yield forms.plain(here + stored, there + name)
