"""Nix in a temporary store, and a copy of the checkout for it, made once for all tests of the shell."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nix_tool
import pytest
from nix_tool import Nix

import tiny_checkout
from assay.errors import AssayError
from tiny_checkout import Tiny


@pytest.fixture(scope="session")
def nix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nix]:
    """Nix, with the stand-in for nixpkgs."""
    directory = tmp_path_factory.mktemp("nix")
    try:
        yield nix_tool.make(directory)
    except AssayError as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        # Directories in a store are read-only, which stops everybody but root.
        for folder, _, _ in os.walk(directory if os.geteuid() else ""):
            Path(folder).chmod(0o755)
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout, as a Git repository of its own; nobody changes it."""
    return nix_tool.copy_checkout(tmp_path_factory.mktemp("flake") / "checkout")


@pytest.fixture
def altered(tmp_path: Path, checkout: Path) -> Callable[[str, str, str], Path]:
    """A function that makes a copy of the checkout in which one file's text is another."""

    def alter(name: str, old: str, new: str) -> Path:
        copy = tmp_path / "altered"
        shutil.copytree(checkout, copy, symlinks=True)
        text = (copy / name).read_text("utf-8")
        assert old in text
        (copy / name).write_text(text.replace(old, new), "utf-8")
        return copy

    return alter


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """A tiny checkout in which nothing is set up."""
    return tiny_checkout.make(tmp_path)
