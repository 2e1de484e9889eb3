"""Without an engine, or with files that do not fit, nothing is built, and it is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from assay.errors import ConfigurationError, PrerequisiteError
from assay.paths import OWNED, ROOT, owned_directory
from assay.sandbox import record as recording
from assay.sandbox.check import check
from assay.sandbox.engine import engine
from assay.sandbox.images import load_images, load_programs
from assay.sandbox.recipe import changed, recipe


def assay(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay.cli", *words],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [("sandbox",), ("sandbox", "--check"), ("sandbox", "--base", "debian")])
def test_an_engine_that_does_not_answer_is_exit_three(words: tuple[str, ...], tmp_path: Path) -> None:
    socket = tmp_path / "nobody.sock"

    done = assay(*words, "--json", DOCKER_HOST=f"unix://{socket}", PATH=docker_path(tmp_path))

    assert done.returncode == 3
    assert f"no Docker engine answers at unix://{socket}" in done.stderr
    assert "next: dockerd" in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 3


def test_an_engine_on_another_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", docker_path(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")

    assert engine() is None


def test_a_machine_without_a_docker_client_is_told_what_to_install(tmp_path: Path) -> None:
    done = assay("sandbox", "--check", PATH=str(tmp_path))

    assert done.returncode == 3
    assert "no docker client on PATH" in done.stderr
    assert "apt-get install" in done.stderr


def test_an_unknown_base_is_exit_two() -> None:
    assert assay("sandbox", "--base", "alpine").returncode == 2


@pytest.mark.docker
def test_a_link_where_the_sandboxs_folder_belongs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = owned_directory(OWNED / "cache") / f"link-{uuid4().hex}"
    link.symlink_to(tmp_path)
    monkeypatch.setattr(recording, "SANDBOX", link)
    try:
        with pytest.raises(ConfigurationError) as caught:
            check()
    finally:
        link.unlink()

    assert "symbolic link" in caught.value.what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.docker
def test_what_was_never_built_is_missing_not_wrong(elsewhere: Path) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        check()

    assert "has not been built" in caught.value.what
    assert list(elsewhere.iterdir()) == []


def test_an_unknown_key_in_the_image_pins_is_refused(runtime: Path) -> None:
    path = runtime / "images.lock"
    path.write_text(path.read_text("utf-8").replace("epoch =", "epock ="), "utf-8")

    with pytest.raises(ConfigurationError) as caught:
        load_images(runtime)

    assert "epock" in caught.value.why


@pytest.mark.parametrize("name", ["Dockerfile", "chat.pins"])
def test_the_recipe_covers_every_file_that_goes_in(runtime: Path, name: str) -> None:
    images, programs = load_images(runtime), load_programs()
    before = recipe("debian", images, programs, runtime)
    path = runtime / name
    path.write_bytes(path.read_bytes() + b"\n")

    assert changed(before, recipe("debian", images, programs, runtime)) == [name]


def test_the_recipe_covers_base_and_uv(runtime: Path) -> None:
    images, programs = load_images(runtime), load_programs()
    before = recipe("debian", images, programs, runtime)
    other_uv = images.model_copy(update={"uv": images.uv.model_copy(update={"binary_sha256": "0" * 64})})
    other_suite = images.model_copy(update={"debian": images.debian.model_copy(update={"suite": "sid"})})

    assert changed(before, recipe("debian", other_uv, programs, runtime)) == ["uv"]
    assert changed(before, recipe("debian", other_suite, programs, runtime)) == ["base"]
    assert changed(before, recipe("registry", images, programs, runtime)) == ["base"]


def docker_path(folder: Path) -> str:
    """A PATH with a docker client that is never run, for machines that have none."""
    binaries = folder / "bin"
    binaries.mkdir()
    client = binaries / "docker"
    client.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    client.chmod(0o755)
    return f"{binaries}{os.pathsep}{os.defpath}"
