"""Each backend of this machine's CPU, and a tiny model of every supported kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from server import abi
from server.build import ensure_built
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_qwen import TinyQwen35


def backends() -> list[str]:
    """Every instruction set this CPU can run, the plain one first."""
    every = ["plain", "avx2", "avx512"]
    return every[: every.index(abi.load(ensure_built().library).detect_isa()) + 1]


@pytest.fixture(params=backends(), scope="session")
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    TinyModel().write(path)
    return path


@pytest.fixture(scope="session")
def hybrid_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hybrid") / "hybrid.gguf"
    TinyQwen35(layers=2).write(path)
    return path
