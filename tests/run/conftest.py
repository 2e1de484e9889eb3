"""The toy checkout, made once for all tests of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import toy_checkout


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[toy_checkout.Toy]:
    made = toy_checkout.make(tmp_path_factory.mktemp("toy"))
    yield made
    if made.warm is not None:
        made.warm.close()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where a test's run directories are made."""
    path = tmp_path / "runs"
    path.mkdir()
    return path
