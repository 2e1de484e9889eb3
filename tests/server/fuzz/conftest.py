"""The opener of hostile files, compiled once, and the small whole model that they are made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from server.build import SANITIZED
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_qwen import TinyQwen35
from tests.server.fuzz.opening import build_driver

SMALL = TinyModel(layers=1, heads=1, head_dim=32, ffn=32, vocabulary=33, context=64)
HYBRID = TinyQwen35(layers=2, heads=1, ffn=32, key_heads=1, value_heads=2, vocabulary=33, context=128)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The opener under the address and undefined-behaviour sanitizers, with the plain operations."""
    return build_driver(replace(SANITIZED["address"], simd=False), tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    SMALL.write(path)
    return path.read_bytes()


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("small") / "hybrid.gguf"
    HYBRID.write(path)
    return path.read_bytes()
