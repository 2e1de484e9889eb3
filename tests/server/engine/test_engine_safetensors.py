"""Hostile directories: every truncated, altered or absurd file is an error with a message, never a crash."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.checkpoint import read
from server.engine import Engine, EngineError
from server.safetensors import CheckpointError, read_header, stored_tensors
from tests.server.engine.tiny_checkpoint import COMPRESSED, GPTQ, NVFP4, Stored, TinyCheckpoint, stored, write

SMALL = TinyCheckpoint("F32", layers=1)


def framed(header: object) -> bytes:
    """A file's beginning: the header's length and the header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TWO = {"a": entry([2], 0, 8), "b": entry([2], 8, 16)}
DATA = bytes(16)


@pytest.mark.parametrize(
    ("why", "data"),
    [
        ("ends inside its header", b""),
        ("ends inside its header", b"\1\2\3"),
        ("ends inside its header", (100).to_bytes(8, "little") + b"{}"),
        ("ends inside its header", (2**64 - 1).to_bytes(8, "little") + b"{}"),
        ("is no JSON", framed(b"{'a': 1}") + DATA),
        ("is no JSON", framed(b"\xff\xfe") + DATA),
        ("holds no JSON object", framed([1]) + DATA),
        ("nested too deeply", framed(b"[" * 200_000) + DATA),
        ("'a' stands twice", framed(json.dumps(TWO).replace('"b"', '"a"').encode()) + DATA),
        ("'shape' stands twice", framed(b'{"a": {"shape": [2], "shape": [2]}}') + DATA),
        ("no JSON number", framed(b'{"a": NaN}') + DATA),
        ("is no JSON", framed(b'{"a": ' + b"9" * 5000 + b"}") + DATA),
        ("is not described by", framed({"a": 3}) + DATA),
        ("is not described by", framed({"a": {"dtype": "F32", "shape": [4]}}) + DATA),
        ("the type 'F4'", framed({"a": entry([4], 0, 16, "F4")}) + DATA),
        ("the type ['F32']", framed({"a": {**entry([4], 0, 16), "dtype": ["F32"]}}) + DATA),
        ("has the shape [-1]", framed({"a": entry([-1], 0, 16)}) + DATA),
        ("has the shape [True]", framed({"a": {**entry([], 0, 4), "shape": [True]}}) + DATA),
        ("has the shape", framed({"a": entry([1] * 9, 0, 4)}) + DATA),
        ("has the shape", framed({"a": entry([2**70], 0, 16)}) + DATA),
        ("asks for others", framed({"a": entry([2**62, 2**62], 0, 16)}) + DATA),
        ("asks for others", framed({"a": entry([3], 0, 16)}) + DATA),
        ("has the offsets", framed({"a": {**entry([4], 0, 16), "data_offsets": [0]}}) + DATA),
        ("has the offsets", framed({"a": {**entry([4], 0, 16), "data_offsets": [-8, 8]}}) + DATA),
        ("past the end", framed({"a": entry([4], 16, 0)}) + DATA),
        ("past the end", framed({"a": entry([8], 0, 32)}) + DATA),
        ("overlaps", framed({"a": entry([3], 0, 12), "b": entry([2], 8, 16)}) + DATA),
        ("overlaps", framed({"a": entry([4], 0, 16), "b": entry([4], 0, 16)}) + DATA),
        ("behind a hole", framed({"a": entry([1], 0, 4), "b": entry([2], 8, 16)}) + DATA),
        ("bytes behind its last tensor", framed({"a": entry([2], 0, 8)}) + DATA),
        ("no printable ASCII", framed({"a\0b": entry([4], 0, 16)}) + DATA),
        ("no printable ASCII", framed(json.dumps({"\ud800": entry([4], 0, 16)}).encode()) + DATA),
    ],
)
def test_an_absurd_header_is_named(why: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as refused:
        read_header(path)
    assert why in f"{refused.value}"


def test_a_claimed_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((1 << 30).to_bytes(8, "little"))
    os.truncate(path, 2 << 30)
    with pytest.raises(CheckpointError, match="claims a header of 1073741824 bytes"):
        read_header(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    SMALL.write(tmp_path)
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(CheckpointError, match="is not a regular file"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("why", "index"),
    [
        ("no object `weight_map`", {}),
        ("no object `weight_map`", {"weight_map": []}),
        ("'../model.safetensors'", {"weight_map": {"a": "../model.safetensors"}}),
        ("'/etc/x.safetensors'", {"weight_map": {"a": "/etc/x.safetensors"}}),
        ("'.safetensors'", {"weight_map": {"a": ".safetensors"}}),
        ("'a/b.safetensors'", {"weight_map": {"a": "a/b.safetensors"}}),
        ("'config.json'", {"weight_map": {"a": "config.json"}}),
        ("which is no safetensors file", {"weight_map": {"a": "a\0.safetensors"}}),
        ("which is no safetensors file", {"weight_map": {"a": 7}}),
        ("cannot be read", {"weight_map": {"a": "none.safetensors"}}),
        ("does not say that two.safetensors holds 'b'", {"weight_map": {"a": "two.safetensors"}}),
        ("'c' does not lie in", {"weight_map": dict.fromkeys("abc", "two.safetensors")}),
    ],
)
def test_an_index_names_what_there_is_in_the_directory_and_nothing_else(
    why: str, index: dict[str, object], tmp_path: Path
) -> None:
    zeros = stored(np.zeros(2, np.float32))
    write(tmp_path / "two.safetensors", {"a": zeros, "b": zeros})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError) as refused:
        stored_tensors(tmp_path)
    assert why in f"{refused.value}"


def changed_config(model: TinyCheckpoint, folder: Path, **fields: object) -> Path:
    model.write(folder)
    (folder / "config.json").write_text(json.dumps({**model.config(), **fields}))
    return folder


@pytest.mark.parametrize(
    ("why", "fields"),
    [
        ("`model_type` is 'gemma'", {"model_type": "gemma"}),
        ("no `model_type`", {"model_type": None}),
        ("no `hidden_size`", {"hidden_size": None}),
        ("`hidden_size` is -1", {"hidden_size": -1}),
        ("`hidden_size` is True", {"hidden_size": True}),
        ("`hidden_size` is 1e+16", {"hidden_size": 1e16}),
        ("more than the 12 tensors", {"num_hidden_layers": 2**31 - 1}),
        ("'model.layers.1.mlp.gate_proj.weight' is missing", {"num_hidden_layers": 2}),
        ("`rms_norm_eps` is '1'", {"rms_norm_eps": "1"}),
        ("`hidden_act` is 'gelu'", {"hidden_act": "gelu"}),
        ("`attention_bias` is True", {"attention_bias": True}),
        ("scaled positions", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
        ("scaled positions", {"rope_parameters": None, "rope_scaling": {"type": "linear"}}),
        ("`use_sliding_window` is True", {"use_sliding_window": True}),
        ("is not llama.embedding_length wide", {"hidden_size": 96}),
        ("'blk.0.attn_k.weight' is", {"num_key_value_heads": 4}),
        ("`quant_method` is 'awq'", {"quantization_config": {"quant_method": "awq"}}),
        ("`quantization_config` is 3", {"quantization_config": 3}),
        ("`bits` is 3", {"quantization_config": {**GPTQ, "bits": 3}}),
        ("`group_size` is 32", {"quantization_config": {**GPTQ, "group_size": 32}}),
        ("`sym` is False", {"quantization_config": {**GPTQ, "sym": False}}),
        ("`desc_act` is True", {"quantization_config": {**GPTQ, "desc_act": True}}),
        ("`checkpoint_format` is 'marlin'", {"quantization_config": {**GPTQ, "checkpoint_format": "marlin"}}),
        ("of single layers", {"quantization_config": {**GPTQ, "dynamic": {"-:.*": {}, "+:x": {"bits": 8}}}}),
        ("`config_groups`", {"quantization_config": {"quant_method": "compressed-tensors"}}),
        (
            "quantised keys and values",
            {"quantization_config": {**COMPRESSED, "kv_cache_scheme": {"num_bits": 8}}},
        ),
        (
            "sparse weights",
            {"quantization_config": {**COMPRESSED, "sparsity_config": {"format": "sparse-24-bitmask"}}},
        ),
    ],
)
def test_a_config_that_is_not_served_is_named(why: str, fields: dict[str, object], tmp_path: Path) -> None:
    folder = changed_config(SMALL, tmp_path, **fields)
    with pytest.raises(EngineError) as refused:
        Engine(folder, threads=1, slots=1)
    assert why in f"{refused.value}"


def group(**weights: object) -> dict[str, object]:
    """compressed-tensors' declaration with other weights."""
    default = COMPRESSED["config_groups"]["group_0"]
    changed = {**default, "weights": {**default["weights"], **weights}}
    return {**COMPRESSED, "config_groups": {"group_0": changed}}


@pytest.mark.parametrize(
    ("why", "declared"),
    [
        ("`num_bits` is 8", group(num_bits=8)),
        ("`group_size` is 32", group(group_size=32)),
        ("`symmetric` is False", group(symmetric=False)),
        ("`strategy` is 'channel'", group(strategy="channel")),
        ("`type` is 'e8m0'", group(type="e8m0")),
        ("`group_size` is 32", group(type="float", group_size=32)),
        (
            "activations quantised by the model",
            {
                "config_groups": {
                    "g": {**COMPRESSED["config_groups"]["group_0"], "input_activations": {"num_bits": 8}}
                }
            },
        ),
        ("`config_groups` is []", {"config_groups": []}),
        ("`weights` is 4", {"config_groups": {"g": {"weights": 4}}}),
    ],
)
def test_a_scheme_that_is_not_served_is_named(why: str, declared: dict[str, object], tmp_path: Path) -> None:
    folder = changed_config(TinyCheckpoint("pack-F16"), tmp_path, quantization_config=declared)
    with pytest.raises(CheckpointError) as refused:
        read(folder)
    assert why in f"{refused.value}"


Edit = Callable[[dict[str, Stored], str], object]


def put(name: str, make: Callable[[Stored], Stored]) -> Edit:
    return lambda tensors, module: tensors.update({f"{module}.{name}": make(tensors[f"{module}.{name}"])})


def added(name: str, values: Stored) -> Edit:
    return lambda tensors, module: tensors.update({f"{module}.{name}": values})


def zeros(shape: tuple[int, ...], kind: type[np.generic] = np.int32) -> Stored:
    return stored(np.zeros(shape, kind))


@pytest.mark.parametrize(
    ("form", "why", "edit"),
    [
        ("pack-F16", "weight_scale' is missing", lambda t, m: t.pop(f"{m}.weight_scale")),
        ("pack-F16", "weight_shape' is missing", lambda t, m: t.pop(f"{m}.weight_shape")),
        ("pack-F16", "a zero point is not served", added("weight_zero_point", zeros((2, 1)))),
        ("pack-F16", "an order of columns is not served", added("weight_g_idx", zeros((128,)))),
        ("pack-F16", "says (1, 128)", put("weight_shape", lambda _: stored(np.array([1, 128])))),
        ("pack-F16", "not F16 or BF16", put("weight_scale", lambda s: zeros(s.shape, np.float32))),
        ("pack-F16", "weight_packed' is I64", put("weight_packed", lambda s: zeros(s.shape, np.int64))),
        ("pack-F16", "a bias is not served", added("bias", zeros((128,), np.float32))),
        ("pack-F16", "has no place", added("weight_other", zeros((1,)))),
        ("gptq", "zeros other than 8", put("qzeros", lambda s: zeros(s.shape))),
        ("gptq", "in another order", put("g_idx", lambda s: stored(np.arange(s.shape[0], dtype=np.int32)))),
        ("gptq", "scales' is missing", lambda t, m: t.pop(f"{m}.scales")),
        ("nvfp4", "not F8_E4M3", put("weight_scale", lambda s: Stored("F8_E5M2", s.shape, s.data))),
        ("nvfp4", "is not one F32 value", put("weight_global_scale", lambda _: zeros((2,), np.float32))),
        (
            "nvfp4",
            "the scale of its scales is",
            put("weight_global_scale", lambda _: zeros((1,), np.float32)),
        ),
        ("F32", "which config.json does not say", added("weight_packed", zeros((128, 16)))),
        ("F32", "is I64; F32, F16 and BF16 are read", put("weight", lambda s: zeros(s.shape, np.int64))),
    ],
)
def test_tensors_that_contradict_their_form_are_named(
    form: str, why: str, edit: Edit, tmp_path: Path
) -> None:
    model = TinyCheckpoint(form)
    model.write(tmp_path)
    tensors, _ = model.tensors()
    edit(tensors, "model.layers.1.self_attn.q_proj")
    write(tmp_path / "model.safetensors", tensors)
    with pytest.raises(EngineError) as refused:
        Engine(tmp_path, threads=1, slots=1)
    assert why in f"{refused.value}"


def test_what_is_left_out_is_what_is_not_served(tmp_path: Path) -> None:
    """Layers that predict further tokens, eyes, and a tied head's copy are no part of the model."""
    model = TinyCheckpoint("F32", tied=True)
    model.write(tmp_path)
    tensors, _ = model.tensors()
    spare = zeros((4,), np.float32)
    beside = dict.fromkeys(("mtp.fc.weight", "model.visual.x", "lm_head.weight"), spare)
    write(tmp_path / "model.safetensors", {**tensors, **beside})
    assert {source.name for source in read(tmp_path).tensors} == {
        source.name for source in read(TinyCheckpoint("F32", tied=True).write(tmp_path / "plain")).tensors
    }
    changed_config(TinyCheckpoint("nvfp4"), tmp_path / "nvfp4", quantization_config=NVFP4)
    assert read(tmp_path / "nvfp4").form.note


@settings(max_examples=150)
@given(data=st.data())
def test_no_altered_directory_crashes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bytes of the header and of config.json overwritten at random: served or refused, in words."""
    folder = tmp_path_factory.mktemp("altered")
    model = TinyCheckpoint(data.draw(st.sampled_from(["F32", "pack-F16"])), layers=1, vocabulary=8)
    model.write(folder)
    path = folder / data.draw(st.sampled_from(["model.safetensors", "config.json"]))
    content = bytearray(path.read_bytes())
    end = 8 + int.from_bytes(content[:8], "little") if path.suffix == ".safetensors" else len(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, end - 1))
        content[at] = data.draw(st.one_of(st.sampled_from(b'0129{}[],:"-'), st.integers(0, 255)))
    path.write_bytes(content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))])
    with contextlib.suppress(EngineError), Engine(folder, threads=1, slots=1, context=4) as engine:
        assert engine.vocabulary == 8
