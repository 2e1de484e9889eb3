"""Without an engine, or with files that do not fit, nothing is built, and it is said."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from assay.errors import ConfigurationError, PrerequisiteError
from assay.paths import OWNED, ROOT, owned_directory
from assay.sandbox import build
from assay.sandbox import record as recording
from assay.sandbox.check import check
from assay.sandbox.engine import connect, engine
from assay.sandbox.images import load_images
from assay.sandbox.recipe import changed, load_recipe


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


def test_an_engine_that_hangs_over_an_answer_is_a_missing_prerequisite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")

    with answering_pings(path), pytest.raises(PrerequisiteError) as caught, connect(1) as client:
        client.info()

    assert "took more than 1 s over one answer" in caught.value.what


@contextmanager
def answering_pings(path: Path) -> Iterator[None]:
    """An engine that is there, and has no time for anything else."""
    released = threading.Event()

    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.endswith(("/_ping", "/version")):
                released.wait(60)
                return
            body = b"OK" if self.path.endswith("/_ping") else b'{"ApiVersion": "1.41"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "engine"

        def log_message(self, *arguments: object) -> None:
            pass

    with socketserver.ThreadingUnixStreamServer(str(path), Engine) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            released.set()
            server.shutdown()


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
            check("verifiers")
    finally:
        link.unlink()

    assert "symbolic link" in caught.value.what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.docker
def test_what_was_never_built_is_missing_not_wrong(elsewhere: Path) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        check("verifiers")

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
    before = load_recipe("verifiers", runtime).parts("debian")
    path = runtime / name
    path.write_bytes(path.read_bytes() + b"\n")

    assert changed(before, load_recipe("verifiers", runtime).parts("debian")) == [name]


def test_the_recipe_covers_base_uv_helpers_and_evaluator(runtime: Path) -> None:
    made = load_recipe("verifiers", runtime)
    images, before = made.images, made.parts("debian")

    def parts(**update: Any) -> dict[str, str]:
        return replace(made, images=images.model_copy(update=update)).parts("debian")

    other_uv = images.uv.model_copy(update={"binary_sha256": "0" * 64})
    assert changed(before, parts(uv=other_uv)) == ["uv"]
    assert changed(before, parts(debian=images.debian.model_copy(update={"suite": "sid"}))) == ["base"]
    assert changed(before, made.parts("registry")) == ["base"]
    assert changed(before, replace(made, helpers=()).parts("debian")) == ["helpers"]
    assert changed(before, replace(made, evaluator="another").parts("debian")) == ["evaluator"]


@pytest.mark.docker
def test_without_pins_nothing_is_built_and_the_command_that_writes_them_is_named(runtime: Path) -> None:
    (runtime / "chat.pins").unlink()

    with pytest.raises(PrerequisiteError) as caught:
        build("verifiers", runtime=runtime)

    assert "chat.pins" in caught.value.what
    assert caught.value.next.startswith("eval/scripts/sandbox verifiers --write-pins")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verifers",), 'did you mean "verifiers"'),
        (("verifiers", "--registry", "https://mirror.example"), "names no registry"),
        (("verifiers", "--check", "--write-pins"), "not allowed with"),
    ],
)
def test_what_names_nothing_is_exit_two(words: tuple[str, ...], said: str) -> None:
    done = assay("sandbox", *words)

    assert done.returncode == 2
    assert said in done.stderr


def test_a_helper_that_images_lock_does_not_know_is_refused(runtime: Path) -> None:
    path = runtime / "images.lock"
    path.write_text(path.read_text("utf-8").replace("localhost/verifiers-network:1", "other:1"), "utf-8")

    with pytest.raises(ConfigurationError, match="does not say what the image localhost/verifiers-network:1"):
        load_recipe("verifiers", runtime)


@pytest.mark.parametrize(
    "text",
    [
        'reference = "a:1"',
        'reference = "a:1"\nmade = true\nmanifest = "sha256:{0}"\nconfig = "sha256:{0}"',
        'reference = "a:1"\nmanifest = "sha256:{0}"',
        'reference = "alpine:3.22"\nmade = true',
    ],
)
def test_a_helper_that_is_half_pinned_or_told_twice_is_refused(runtime: Path, text: str) -> None:
    path = runtime / "images.lock"
    path.write_text(f"{path.read_text('utf-8')}\n[[helper]]\n{text.format('0' * 64)}\n", "utf-8")

    with pytest.raises(ConfigurationError, match=r"images\.lock cannot be used"):
        load_images(runtime)


def test_production_leaves_no_image_of_a_registry_to_a_tag() -> None:
    pins = {pin.reference: pin for pin in load_images().helper}

    assert {tag for tag, pin in pins.items() if pin.made} == {"localhost/verifiers-network:1"}
    assert pins.keys() >= {"python:3.11-alpine", "alpine:3.22"}


def docker_path(folder: Path) -> str:
    """A PATH with a docker client that is never run, for machines that have none."""
    binaries = folder / "bin"
    binaries.mkdir()
    client = binaries / "docker"
    client.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    client.chmod(0o755)
    return f"{binaries}{os.pathsep}{os.defpath}"
