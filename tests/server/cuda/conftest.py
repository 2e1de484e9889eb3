"""The CUDA kernels as they are tested without a GPU: compiled for the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.build_cuda import ensure_built_emulated
from tests.server.engine.tiny import TinyModel

ISA = "cuda-emulated"


@pytest.fixture(scope="session")
def emulated() -> Path:
    """The library of the kernels on the processor."""
    return ensure_built_emulated().library


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    TinyModel().write(path)
    return path
