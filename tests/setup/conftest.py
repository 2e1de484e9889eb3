"""Tiny checkouts for the set-up's tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_checkout import Tiny, make


@pytest.fixture
def bare(tmp_path: Path) -> Tiny:
    """A tiny checkout in which nothing is set up."""
    return make(tmp_path)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny checkout whose environment `assay` was set up, with a copy of it beside."""
    tiny = make(tmp_path_factory.mktemp("tiny"))
    done = tiny.setup()
    assert done.returncode == 0, done.stderr
    shutil.copytree(tiny.root, tiny.root.with_name("saved"), symlinks=True)
    return tiny


@pytest.fixture
def whole(original: Tiny) -> Iterator[Tiny]:
    """The checkout that was set up, as it was after that."""
    yield original
    shutil.rmtree(original.root)
    shutil.copytree(original.root.with_name("saved"), original.root, symlinks=True)
