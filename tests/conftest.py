"""Fixtures that every room's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from assay.errors import AssayError
from assay.models import verify

# How long an example takes is no property of the code: this machine may be busy.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The real 4-bit model, verified; the test command fetches it before it runs the tests."""
    try:
        return verify("smollm2-135m")
    except AssayError as error:
        pytest.fail(str(error), pytrace=False)
