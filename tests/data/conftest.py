"""A pin set of its own for each test, so that nothing of the checkout's own data is touched."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from unittest import mock

import pytest
from data_site import Site

from assay import paths
from assay.data import patience, pins


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A pin set with an empty lock, in force for this process and its children; short waits."""
    name = f"data-{uuid.uuid4().hex[:12]}"
    directory = paths.owned_directory(paths.CACHE / "tests" / name)
    (directory / "pins.toml").write_text(f'name = "{name}"\n')
    made = paths.OWNED / "pins" / name
    monkeypatch.setattr(patience, "FIRST_S", 0.01)
    with mock.patch.dict(os.environ):
        for variable in list(os.environ):
            if variable.startswith(("HF_", "HUGGING")):
                del os.environ[variable]
        os.environ["ASSAY_PINS"] = str(directory)
        # Nothing may be looked up in the caches of who runs the tests.
        os.environ["HF_HOME"] = str(directory / "hf-home")
        try:
            yield Site(directory, made / "data")
        finally:
            shutil.rmtree(directory)
            shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def tiny(site: Site) -> Site:
    """It, with one small dataset of the hub in its lock."""
    site.tiny()
    assert set(pins.datasets()) == {"tiny"}
    return site
