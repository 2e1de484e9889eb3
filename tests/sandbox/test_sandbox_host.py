"""On the host runtime too a run starts the pinned programs with the pinned packages, and asks no index."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from assay.errors import VerificationError
from assay.sandbox import prepare_host
from assay.sandbox.images import load_programs
from assay.sandbox.record import SANDBOX

CHAT = load_programs("verifiers")[0]
NOBODY = "http://127.0.0.1:9"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's own store, filled."""
    prepare_host(tmp_path_factory.mktemp("home"), "verifiers")
    return SANDBOX


@pytest.fixture
def spoilable(store: Path, elsewhere: Path) -> Path:
    """A copy of the store, in its place for this test."""
    for name in ("host", "wheels"):
        shutil.copytree(store / name, elsewhere / name, symlinks=True)
    return elsewhere


def start_as_verifiers_does(home: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Sync the program and start it, with uv from the home and every way to an index cut off."""
    program = home / ".cache/verifiers/runtimes/scripts" / f"{CHAT.sha256}.py"
    script = (
        'set -e; export PATH="$HOME/.local/bin:$PATH"; uv sync --script "$0" -q --no-config; '
        'python="$(uv python find --script "$0" --no-config)"; echo "$python"; "$python" "$0" --help'
    )
    environment = {
        **variables,
        "HOME": str(home),
        "PATH": os.defpath,
        "UV_OFFLINE": "false",
        "HTTPS_PROXY": NOBODY,
        "HTTP_PROXY": NOBODY,
        "ALL_PROXY": NOBODY,
    }
    return subprocess.run(
        ["/bin/sh", "-c", script, program], env=environment, capture_output=True, text=True, check=False
    )


def test_the_program_starts_from_the_private_home_without_an_index(store: Path, tmp_path: Path) -> None:
    variables = prepare_host(tmp_path, "verifiers")

    done = start_as_verifiers_does(tmp_path, variables)

    assert done.returncode == 0, done.stderr
    assert "--initial-messages-file" in done.stdout
    python = Path(done.stdout.splitlines()[0])
    assert python.is_relative_to(tmp_path)
    assert list(python.parents[1].rglob("openai/__pycache__/__init__.*.pyc"))


def test_without_the_home_being_prepared_it_would_ask_the_index(store: Path, tmp_path: Path) -> None:
    variables = prepare_host(tmp_path, "verifiers")
    shutil.rmtree(tmp_path / ".cache" / "uv")

    assert start_as_verifiers_does(tmp_path, variables).returncode != 0


def test_preparing_the_same_home_again_changes_nothing(store: Path, tmp_path: Path) -> None:
    variables = prepare_host(tmp_path, "verifiers")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))

    assert prepare_host(tmp_path, "verifiers") == variables
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_a_byte_changed_in_a_stored_wheel_is_found(spoilable: Path, tmp_path: Path) -> None:
    module = next(spoilable.glob("wheels/*/cache/archive-v*/*/openai/_client.py"))
    module.write_bytes(module.read_bytes() + b"\n")

    with pytest.raises(VerificationError, match="was changed since its wheels were fetched"):
        prepare_host(tmp_path, "verifiers")


def test_a_byte_changed_in_a_stored_lock_is_found(spoilable: Path, tmp_path: Path) -> None:
    lock = spoilable / "host" / "production" / "verifiers" / "programs" / f"{CHAT.sha256}.py.lock"
    lock.write_bytes(lock.read_bytes() + b"\n")

    with pytest.raises(VerificationError, match="was changed since it was made"):
        prepare_host(tmp_path, "verifiers")
