"""One process of the evaluator's environment for all tests, and one under another hash seed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from evaluator_side import Ask, LibrarySide


@pytest.fixture(scope="session")
def ask() -> Iterator[Ask]:
    """Ask a process under hash seed 0, as every profile has it."""
    side = LibrarySide("0")
    yield side.ask
    side.close()


@pytest.fixture(scope="session")
def ask_elsewhere() -> Iterator[Ask]:
    """Ask a process under another hash seed."""
    side = LibrarySide("1")
    yield side.ask
    side.close()
