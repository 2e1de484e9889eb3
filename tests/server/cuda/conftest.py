"""The CUDA kernels as they are tested without a GPU: compiled for the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.build_cuda import ensure_built_emulated
from tests.server.engine.tiny import TinyModel

ISA = "cuda-emulated"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The CPU's widest rows take the emulation seconds each: only with the long tests."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "1536" in item.nodeid:
            item.add_marker("long")


@pytest.fixture(scope="session")
def emulated() -> Path:
    """The library of the kernels on the processor."""
    return ensure_built_emulated().library


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    TinyModel().write(path)
    return path
