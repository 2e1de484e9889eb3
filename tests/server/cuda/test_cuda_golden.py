"""The tiny checkpoints on the emulated device against the public implementations' own logits.

The longest prompt, which crosses three borders of a chunk, is the CPU's: here seventy tokens cross one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.checkpoints import fixture
from tests.server.checkpoints.models import MODELS
from tests.server.engine.test_engine_golden import (
    FLOAT,
    QUANTISED,
    ROUNDED,
    TOLERANCE,
    answers,
    divergence,
    error,
)

pytestmark = pytest.mark.slow

SHORT = slice(1, None)


@pytest.mark.parametrize("name", FLOAT)
def test_a_gguf_file_is_answered_as_the_public_implementation_does(name: str, tmp_path: Path) -> None:
    path = fixture.as_gguf(name, tmp_path / "model.gguf")
    for given, golden in answers(path, name, None, "cuda-emulated", SHORT):
        assert error(given, golden) < TOLERANCE


@pytest.mark.parametrize("name", FLOAT)
def test_a_directory_is_answered_as_the_public_implementation_does(name: str, tmp_path: Path) -> None:
    path = fixture.as_directory(name, tmp_path / "model", "BF16", shards=2)
    for given, golden in answers(path, name, None, "cuda-emulated", SHORT):
        assert error(given, golden) < TOLERANCE


@pytest.mark.parametrize("name", QUANTISED)
def test_a_quantised_directory_is_answered_to_its_rounding(name: str) -> None:
    for given, golden in answers(MODELS[name].folder, name, None, "cuda-emulated", SHORT):
        assert divergence(given, golden) < ROUNDED
