"""Whole tiny models of every shape and type against exact arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from bench.reference import Reference
from server.engine import Chunk, Engine
from tests.server.engine.tiny import TinyModel

FULL = TinyModel(kind=Kind.F32, embedding_kind=Kind.F32)
SHAPES = {
    "tied": FULL,
    "untied": TinyModel(kind=Kind.F32, embedding_kind=Kind.F32, tied=False),
    "a-kv-head-each": TinyModel(kind=Kind.F32, embedding_kind=Kind.F32, heads=4, kv_heads=4, head_dim=16),
    "eight-queries-a-kv-head": TinyModel(
        kind=Kind.F32, embedding_kind=Kind.F32, heads=8, kv_heads=1, head_dim=16
    ),
    "heads-across-panels": TinyModel(
        kind=Kind.F32, embedding_kind=Kind.F32, heads=12, kv_heads=3, head_dim=40
    ),
    "partial-rope": TinyModel(kind=Kind.F32, embedding_kind=Kind.F32, rope_dim=12),
    "one-layer": TinyModel(kind=Kind.F32, embedding_kind=Kind.F32, layers=1),
}
# Greatest mean KL divergence: keys and values are rounded, and before blocks of integers activations too.
KINDS = {Kind.F32: 1e-6, Kind.F16: 1e-6, Kind.Q4_0: 3e-3, Kind.Q4_1: 3e-3, Kind.Q8_0: 3e-3}


def divergence(model: TinyModel, folder: Path, isa: str) -> float:
    """Mean KL divergence of the engine's distributions from the exact ones, over 150 tokens."""
    path = folder / "model.gguf"
    model.write(path)
    tokens = np.random.default_rng(1).integers(0, model.vocabulary, 150)
    exact = Reference(path).logits(tokens)
    with Engine(path, threads=2, isa=isa) as engine:
        given = engine.step([Chunk(0, 0, tokens.tolist(), "all")]).logits.astype(np.float64)
    assert given.shape == exact.shape
    p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (exact, given))
    return float((np.exp(p) * (p - q)).sum(-1).mean())


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_computed_exactly(name: str, isa: str, tmp_path: Path) -> None:
    assert divergence(SHAPES[name], tmp_path, isa) < 1e-6


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_type_is_computed_to_its_rounding(kind: Kind, isa: str, tmp_path: Path) -> None:
    model = TinyModel(kind=kind, embedding_kind=kind, tied=False)
    assert divergence(model, tmp_path, isa) < KINDS[kind]


def test_metadata_keeps_its_types(tiny_path: Path) -> None:
    with Engine(tiny_path, threads=1, slots=1) as engine:
        metadata = engine.metadata
        assert metadata["general.architecture"] == "llama"
        assert metadata["llama.embedding_length"] == 96
        assert metadata["tiny.flag"] is True
        assert metadata["tiny.numbers"] == [1, 2, 3]
        assert metadata["tokenizer.ggml.tokens"] == [f"t{index}" for index in range(75)]
        assert metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
        assert (engine.vocabulary, engine.context, engine.slots, engine.threads) == (75, 512, 1, 1)
