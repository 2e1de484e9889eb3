"""Whole tiny models of the Qwen families against exact arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind

from server.engine import Engine, EngineError
from tests.server.engine.test_engine_model import divergence
from tests.server.engine.tiny_qwen import TinyQwen3, TinyQwen35

QWEN3 = {
    "tied": TinyQwen3(kind=Kind.F32, embedding_kind=Kind.F32),
    "untied": TinyQwen3(kind=Kind.F32, embedding_kind=Kind.F32, tied=False),
    "heads-across-panels": TinyQwen3(
        kind=Kind.F32, embedding_kind=Kind.F32, heads=12, kv_heads=3, head_dim=40
    ),
    "wide-heads": TinyQwen3(kind=Kind.F32, embedding_kind=Kind.F32, heads=4, kv_heads=2, head_dim=128),
}
QWEN35 = {
    "three-value-heads-a-key-head": TinyQwen35(kind=Kind.F32, embedding_kind=Kind.F32, tied=False),
    "a-value-head-each": TinyQwen35(kind=Kind.F32, embedding_kind=Kind.F32, key_heads=3, value_heads=3),
    "wide-keys": TinyQwen35(kind=Kind.F32, embedding_kind=Kind.F32, key_dim=128, value_dim=64, layers=2),
    "wide-values": TinyQwen35(
        kind=Kind.F32, embedding_kind=Kind.F32, value_heads=2, value_dim=128, conv=2, skipped=0
    ),
    "one-attention-in-three": TinyQwen35(
        kind=Kind.F32, embedding_kind=Kind.F32, layers=3, interval=3, conv=8
    ),
}


@pytest.mark.parametrize("name", QWEN3)
def test_every_shape_of_qwen3_is_computed_exactly(name: str, isa: str, tmp_path: Path) -> None:
    assert divergence(QWEN3[name], tmp_path, isa) < 1e-6


@pytest.mark.parametrize("name", QWEN35)
def test_every_shape_of_qwen35_is_computed_exactly(name: str, isa: str, tmp_path: Path) -> None:
    assert divergence(QWEN35[name], tmp_path, isa) < 1e-6


@pytest.mark.parametrize("kind", [Kind.F16, Kind.Q8_0, Kind.Q4_1], ids=lambda kind: kind.name)
def test_qwen35_is_computed_to_its_types_rounding(kind: Kind, isa: str, tmp_path: Path) -> None:
    model = TinyQwen35(kind=kind, embedding_kind=kind)
    assert divergence(model, tmp_path, isa) < (1e-6 if kind == Kind.F16 else 5e-3)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16], ids=lambda kind: kind.name)
def test_vectors_may_be_halves(kind: Kind, tmp_path: Path) -> None:
    model = TinyQwen35(kind=Kind.F32, embedding_kind=Kind.F32, vector_kind=kind, layers=2)
    assert divergence(model, tmp_path, "plain") < 1e-6


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("without a layer of full attention", TinyQwen35(layers=2, interval=3)),
        ("2 value heads do not share 3 key heads", TinyQwen35(key_heads=3, value_heads=2)),
        ("delta-rule heads of 160 values", TinyQwen35(value_dim=160)),
        ("delta-rule heads of 16 values", TinyQwen35(key_dim=16)),
        ("a convolution over 9 positions", TinyQwen35(conv=9)),
        ("has more than 4|up to 4 numbers", TinyQwen35(sections=(4, 3, 3, 3, 3))),
        ("holds 300", TinyQwen35(sections=(300,))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_shape_that_is_not_served_is_refused_by_name(words: str, model: TinyQwen35, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    model.write(path)
    with pytest.raises(EngineError, match=words):
        Engine(path, threads=1, slots=1)


def test_layers_to_be_skipped_may_not_be_all(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    TinyQwen35(layers=0, skipped=2).write(path)
    with pytest.raises(EngineError, match="of 2 layers 2 predict further tokens"):
        Engine(path, threads=1, slots=1)


def test_a_tensor_of_no_layer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    TinyQwen35(skipped=2).write(path)
    data = path.read_bytes().replace(b"blk.5.nextn.eh_proj.weight", b"blk.6.nextn.eh_proj.weight")
    path.write_bytes(data)
    with pytest.raises(EngineError, match=r"'blk.6.nextn.eh_proj.weight' has no place"):
        Engine(path, threads=1, slots=1)
