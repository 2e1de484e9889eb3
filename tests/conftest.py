"""Fixtures that every room's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is no property of the code: this machine may be busy.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

ROOT = Path(__file__).parents[1]
MODEL = ROOT / ".assay" / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The real 4-bit model, which the test command fetches before it runs the tests."""
    if not MODEL.is_file():
        pytest.fail(f"{MODEL} is missing; fetch it with: assay model fetch smollm2-135m", pytrace=False)
    return MODEL
