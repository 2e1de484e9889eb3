"""Hollow models have the headers of real ones, take no room, and can be planned."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType, GGUFReader

from server.hollow_model import FORMS, main, write
from server.model_shape import SHAPES, Shape
from server.plan import Holding, plan
from tests.server.checkpoints import fixture
from tests.server.checkpoints.models import MODELS


def shape_of(name: str, architecture: str) -> Shape:
    """The shape that a fixture's config.json tells."""
    text = fixture.text(name)
    rope = text["rope_parameters"]
    assert isinstance(rope, dict)

    def number(key: str) -> int:
        return int(str(text.get(key, 0)))

    return Shape(
        architecture,
        number("num_hidden_layers"),
        number("hidden_size"),
        number("intermediate_size"),
        number("num_attention_heads"),
        number("num_key_value_heads"),
        number("head_dim"),
        int(number("head_dim") * rope.get("partial_rotary_factor", 1)),
        number("vocab_size"),
        number("max_position_embeddings"),
        rope_base=rope["rope_theta"],
        epsilon=float(str(text["rms_norm_eps"])),
        interval=number("full_attention_interval") or 1,
        key_heads=number("linear_num_key_heads"),
        value_heads=number("linear_num_value_heads"),
        delta_dim=number("linear_key_head_dim"),
        conv=number("linear_conv_kernel_dim"),
        sections=tuple(rope.get("mrope_section", ())),
        tied=bool(fixture.config(name).get("tie_word_embeddings")),
    )


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen35"])
def test_a_gguf_has_the_tensors_and_metadata_of_a_real_one(architecture: str, tmp_path: Path) -> None:
    real = GGUFReader(fixture.as_gguf(architecture, tmp_path / "real.gguf", GGMLQuantizationType.Q8_0))
    hollow = GGUFReader(write(shape_of(architecture, architecture), "q8_0", tmp_path / "hollow.gguf"))

    def table(reader: GGUFReader) -> dict[str, tuple[list[int], int]]:
        return {
            tensor.name: (tensor.shape.tolist(), int(tensor.tensor_type))
            for tensor in reader.tensors
            if "nextn" not in tensor.name and not tensor.name.startswith(f"blk.{layers}.")
        }

    layers = int(str(fixture.text(architecture)["num_hidden_layers"]))
    assert table(hollow) == table(real)
    left_out = {f"{architecture}.{key}" for key in ("block_count", "nextn_predict_layers", "vocab_size")}
    keys = [key for key in real.fields if key.startswith(f"{architecture}.") and key not in left_out]
    assert len(keys) > 8
    for key in keys:
        assert hollow.fields[key].contents() == pytest.approx(real.fields[key].contents()), key


def test_a_directory_has_the_tensors_of_a_real_one(tmp_path: Path) -> None:
    hollow = write(shape_of("qwen35-w4a16", "qwen35"), "w4a16", tmp_path / "hollow")

    def table(folder: Path) -> dict[str, tuple[str, list[int]]]:
        with (folder / "model.safetensors").open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        return {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()}

    assert table(hollow) == table(MODELS["qwen35-w4a16"].folder)


@pytest.mark.parametrize("form", FORMS)
def test_a_model_of_8_billion_weights_is_planned_in_kilobytes(form: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    assert main(["llama-8b", form, str(path)]) == 0
    file = path / "model.safetensors" if path.is_dir() else path
    status = file.stat()
    assert status.st_size > 4 * 10**9
    assert status.st_blocks * 512 < 4 * 10**6
    memory, _ = plan(path, Holding(), 24 << 30, [])
    shape = SHAPES["llama-8b"]
    embedding = shape.vocabulary * shape.width
    matrices = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336)
    bits = {  # of a weight of the layers, and of embedding and head together
        "q4_0": (4.5, 4.5 + 6.5625),
        "q8_0": (8.5, 17),
        "w4a16": (4.125, 32),
        "w4a16-head": (4.125, 16 + 4.125),
    }
    vectors = 65 * 4096 * 4
    if form == "q4_k_m":
        assert 4.5 * (matrices + embedding) / 8 < memory.weight_bytes < 5.2 * (matrices + 2 * embedding) / 8
    else:
        each, both = bits[form]
        assert memory.weight_bytes == (each * matrices + both * embedding) / 8 + vectors
    assert memory.largest_context == shape.context


def test_a_27b_at_4_bits_has_room_for_262144_positions_in_24_gib_with_keys_and_values_at_4_bits(
    tmp_path: Path,
) -> None:
    path = write(SHAPES["qwen35-27b"], "w4a16-head", tmp_path / "model")
    context = SHAPES["qwen35-27b"].context
    assert context == 262_144

    def largest(kv: str) -> int:
        return plan(path, Holding(1, context, kv, kept_slots=0), 24 << 30, [])[0].largest_context

    assert 0 < largest("f16") < largest("int8") < context
    assert largest("q4") == context


def test_a_form_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'q3' is none of q4_0, "):
        write(SHAPES["llama-8b"], "q3", tmp_path / "model")


@pytest.mark.parametrize("form", ["q4_0", "w4a16"])
def test_nothing_is_replaced_by_a_hole(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "model", tmp_path / "model.gguf"
    folder.mkdir()
    file.write_bytes(b"weights")
    for path, why in ((folder, "File exists"), (file, "File exists"), (file / "x", "Not a directory")):
        with pytest.raises(SystemExit) as ended:
            main(["llama-8b", form, str(path)])
        assert ended.value.code == 2
        assert f"{path} cannot be written: {why}" in capsys.readouterr().err
    assert (list(folder.iterdir()), file.read_bytes()) == ([], b"weights")
