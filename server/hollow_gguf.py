"""Hollow models as GGUF files: the header of a real one, then a hole."""

from __future__ import annotations

from pathlib import Path

from server.gguf_header import F32, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, Entry, Kind, Value, header, padded
from server.model_shape import Shape, matrices, vectors

FORMS = ("q4_0", "q4_k_m", "q8_0")


def write_gguf(shape: Shape, form: str, path: Path) -> None:
    """Write the file."""
    size = (shape.width, shape.vocabulary)
    tensors = [
        Entry("token_embd.weight", _kind(form, "token_embd", 0, shape.layers), size),
        Entry("output_norm.weight", F32, (shape.width,)),
    ]
    if not shape.tied:
        tensors.append(Entry("output.weight", _kind(form, "output", 0, shape.layers), size))
    for layer in range(shape.layers):
        tensors += [Entry(f"blk.{layer}.{name}", F32, size) for name, size in vectors(shape, layer)]
        for name, rows, columns in matrices(shape, layer):
            kind = _kind(form, name, layer, shape.layers)
            tensors.append(Entry(f"blk.{layer}.{name}.weight", kind, (columns, rows)))
    head = header(_metadata(shape), tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + sum(padded(tensor.size_bytes) for tensor in tensors))


def _kind(form: str, name: str, layer: int, layers: int) -> Kind:
    """The type of a matrix in a form."""
    if form == "q8_0":
        return Q8_0
    if name == "output":
        return Q6_K
    if form == "q4_0":
        return Q4_0
    # Where the first and last eighths, and each third between them, are kept better.
    better = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    if name in ("attn_v", "ffn_down") and better:
        return Q6_K
    return Q5_K if name == "attn_qkv" else Q4_K


def _metadata(shape: Shape) -> dict[str, Value]:
    values: dict[str, Value] = {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.width,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": shape.epsilon,
        "rope.freq_base": shape.rope_base,
        "rope.dimension_count": shape.rope_dim,
    }
    if shape.conv:
        values |= {
            "rope.dimension_sections": (*shape.sections, 0),
            "full_attention_interval": shape.interval,
            "ssm.conv_kernel": shape.conv,
            "ssm.group_count": shape.key_heads,
            "ssm.time_step_rank": shape.value_heads,
            "ssm.state_size": shape.delta_dim,
            "ssm.inner_size": shape.value_heads * shape.delta_dim,
        }
    named = {f"{shape.architecture}.{key}": value for key, value in values.items()}
    return {"general.architecture": shape.architecture, **named}
