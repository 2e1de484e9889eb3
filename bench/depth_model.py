"""A small `qwen35` of random full-precision weights whose attention finds single positions at any depth.

Contract: the file is a function of nothing but this module; it is written with the `gguf` package of the test
environment. Queries and keys are scaled so that their scores have a deviation of about 2.6: at 32,768
positions some fifty of them share a query's weight, where plain random weights would average over all of them
and no rounding could be seen. Half of the heads of the gated delta rule forget within some hundred tokens,
half remember thousands.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter

LAYERS, INTERVAL = 4, 2
WIDTH, FFN = 128, 256
HEADS, KV_HEADS, HEAD_DIM, ROPE_DIM = 2, 1, 64, 16
KEY_HEADS, VALUE_HEADS, DELTA_DIM, CONV = 2, 4, 32, 4
VOCABULARY = 256
CONTEXT = 262_144
SHARPNESS = 1.6  # of each of queries and keys
SEED = 20_261_130

Floats = npt.NDArray[np.float32]


def write(path: Path) -> None:
    """Write the model."""
    writer = GGUFWriter(path, "qwen35")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(ROPE_DIM)
    writer.add_rope_dimension_sections([3, 3, 2, 0])
    writer.add_ssm_conv_kernel(CONV)
    writer.add_ssm_state_size(DELTA_DIM)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_inner_size(VALUE_HEADS * DELTA_DIM)
    writer.add_full_attention_interval(INTERVAL)
    writer.add_token_list([f"t{index}" for index in range(VOCABULARY)])
    for name, values in tensors().items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors() -> dict[str, Floats]:
    """Every tensor by name, as a GGUF file holds it."""
    random = np.random.default_rng(SEED)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Floats:
        return np.asarray(gain * random.standard_normal((rows, columns)) / np.sqrt(columns), np.float32)

    def norm(size: int, gain: float = 1.0) -> Floats:
        return np.asarray(gain * (1.0 + 0.1 * random.standard_normal(size)), np.float32)

    keys, values = KEY_HEADS * DELTA_DIM, VALUE_HEADS * DELTA_DIM
    found = {
        "token_embd.weight": matrix(VOCABULARY, WIDTH, 2.0),
        "output.weight": matrix(VOCABULARY, WIDTH, 3.0),
        "output_norm.weight": norm(WIDTH),
    }
    for index in range(LAYERS):
        layer: dict[str, Floats] = {
            "attn_norm.weight": norm(WIDTH),
            "post_attention_norm.weight": norm(WIDTH),
            "ffn_gate.weight": matrix(FFN, WIDTH),
            "ffn_up.weight": matrix(FFN, WIDTH),
            "ffn_down.weight": matrix(WIDTH, FFN),
        }
        if (index + 1) % INTERVAL == 0:
            layer |= {
                "attn_q.weight": matrix(2 * HEADS * HEAD_DIM, WIDTH),
                "attn_k.weight": matrix(KV_HEADS * HEAD_DIM, WIDTH),
                "attn_v.weight": matrix(KV_HEADS * HEAD_DIM, WIDTH),
                "attn_output.weight": matrix(WIDTH, HEADS * HEAD_DIM, 3.0),
                "attn_q_norm.weight": norm(HEAD_DIM, SHARPNESS),
                "attn_k_norm.weight": norm(HEAD_DIM, SHARPNESS),
            }
        else:
            layer |= {
                "attn_qkv.weight": matrix(2 * keys + values, WIDTH),
                "attn_gate.weight": matrix(values, WIDTH),
                "ssm_alpha.weight": matrix(VALUE_HEADS, WIDTH),
                "ssm_beta.weight": matrix(VALUE_HEADS, WIDTH),
                "ssm_conv1d.weight": matrix(2 * keys + values, CONV, 2.0),
                "ssm_a": -np.geomspace(2e-4, 0.1, VALUE_HEADS).astype(np.float32),
                "ssm_dt.bias": random.standard_normal(VALUE_HEADS).astype(np.float32),
                "ssm_norm.weight": norm(DELTA_DIM),
                "ssm_out.weight": matrix(WIDTH, values),
            }
        found |= {f"blk.{index}.{name}": each for name, each in layer.items()}
    return found
