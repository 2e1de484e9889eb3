"""The sandbox of the pinned Verifiers: its harness's program and a scorer's; pins are written once."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest

from assay import pinset, sandbox
from assay.sandbox import pins
from assay.sandbox.recipe import load_recipe
from pinned.locks import PINS
from pinned.site import Site

SCRIPT = (
    "set -e; for p in /tmp/vf-scripts/*.py; do uv sync --script $p --no-config -q; "
    "$(uv python find --script $p --no-config) -c 'import sys; print(sys.prefix)'; sha256sum $p; done"
)


@pytest.mark.docker
@pytest.mark.slow
def test_harness_and_scorer_are_ready_without_any_network(
    pinned: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pinset.VARIABLE, str(PINS))
    image = sandbox.build("prime-envs")
    client = docker.from_env(timeout=60)
    said = client.containers.run(
        image.image_id,
        ["sh", "-c", SCRIPT],
        network_mode="none",
        remove=True,
        environment={"UV_LOCKED": "true", "UV_PYTHON": image.python, "UV_PYTHON_DOWNLOADS": "never"},
    )
    client.close()

    assert set(said.decode().split()) >= set(image.programs.values())
    assert image.programs.keys() == {"null", "livecodebench"}
    assert image.helpers.keys() == {"python:3.11-alpine", "alpine:3.22"}


def test_pins_that_are_missing_are_written_once_for_review(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runtime / "chat.pins").unlink()
    monkeypatch.setattr(pins, "load_recipe", lambda name: load_recipe(name, runtime))
    monkeypatch.setattr(pinset, "current", lambda: pinset.PinSet("other", runtime))

    assert pins.write_pins("verifiers") == [runtime / "chat.pins"]

    text = (runtime / "chat.pins").read_text("utf-8")
    assert "mcp==2.0.0" in text
    assert text.count("--hash=sha256:") > 46
    assert "://" not in text
    assert pins.write_pins("verifiers") == []
