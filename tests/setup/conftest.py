"""Tiny checkouts for the set-up's tests, without and with pinned sources."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from upstream import World, as_it_was, make_world

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


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A checkout whose source is not there; each test leaves it so."""
    return make_world(tmp_path_factory.mktemp("empty") / "world")


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A checkout whose source was fetched."""
    world = make_world(tmp_path_factory.mktemp("fetched") / "world")
    world.fetch()
    return world


@pytest.fixture
def world(empty: World) -> Iterator[World]:
    """A checkout whose source is not there."""
    with as_it_was(empty) as found:
        yield found


@pytest.fixture
def here(fetched: World) -> Iterator[World]:
    """A checkout whose source is there."""
    with as_it_was(fetched) as found:
        yield found
