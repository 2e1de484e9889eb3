"""Whole tiny models of the Qwen families against exact arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind

from tests.server.engine.test_engine_model import divergence
from tests.server.engine.tiny_qwen import TinyQwen3

QWEN3 = {
    "tied": TinyQwen3(kind=Kind.F32, embedding_kind=Kind.F32),
    "untied": TinyQwen3(kind=Kind.F32, embedding_kind=Kind.F32, tied=False),
    "heads-across-panels": TinyQwen3(
        kind=Kind.F32, embedding_kind=Kind.F32, heads=12, kv_heads=3, head_dim=40
    ),
    "wide-heads": TinyQwen3(kind=Kind.F32, embedding_kind=Kind.F32, heads=4, kv_heads=2, head_dim=128),
}


@pytest.mark.parametrize("name", QWEN3)
def test_every_shape_of_qwen3_is_computed_exactly(name: str, isa: str, tmp_path: Path) -> None:
    assert divergence(QWEN3[name], tmp_path, isa) < 1e-6
