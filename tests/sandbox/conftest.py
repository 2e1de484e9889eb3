"""The real image, built once if it is not there, and a record of it that a test may spoil."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from assay import sandbox
from assay.errors import AssayError
from assay.paths import OWNED, RUNTIME, owned_directory
from assay.sandbox import record as recording
from assay.sandbox.record import SANDBOX

EVALUATOR = "verifiers"


@pytest.fixture(scope="session")
def image() -> sandbox.SandboxImage:
    """The sandbox image of the embedded evaluator."""
    try:
        return sandbox.build(EVALUATOR)
    except AssayError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in the place of `.assay/sandbox`, for this test alone."""
    folder = owned_directory(OWNED / "cache" / f"test-{uuid4().hex}")
    monkeypatch.setattr(recording, "SANDBOX", folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def copied(image: sandbox.SandboxImage, elsewhere: Path) -> Path:
    """The real record, copied to where it may be spoiled."""
    return Path(shutil.copy(SANDBOX / f"{EVALUATOR}.json", elsewhere / f"{EVALUATOR}.json"))


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A copy of `runtime/` that a test may change."""
    return Path(shutil.copytree(RUNTIME, tmp_path / "runtime"))
