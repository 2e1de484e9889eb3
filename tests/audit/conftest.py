"""The toy checkout with an honest run in it, and one process that audits every copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from altered import Altered

import toy_checkout


@pytest.fixture(scope="session")
def honest(toy: toy_checkout.Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody touched, made by the real command."""
    runs = tmp_path_factory.mktemp("honest")
    done = toy.run("run", "toy", "--runs", runs, "--json")
    assert done.code == 0, done.err
    return Path(done.json["run_dir"])


@pytest.fixture
def altered(honest: Path, tmp_path: Path) -> Altered:
    """A copy of the honest run, under its own name, for one test to change."""
    run = tmp_path / honest.name
    shutil.copytree(honest, run, symlinks=True)
    return Altered(run)
