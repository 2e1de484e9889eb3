"""Tiny checkpoints of every architecture and form against the public implementations' own logits.

The fixtures of `tests/server/checkpoints/` are what `transformers` answered in float32. The GGUF forms are
made here, so they are held against llama.cpp first: as it reads them the engine has to read them.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bench.peers import OPEN_S, open_side
from tests.server.checkpoints import fixture
from tests.server.checkpoints.models import MODELS

FLOAT = [name for name, tiny in MODELS.items() if tiny.form == "float"]
TOLERANCE = 1e-3  # of a position's largest logit


def error(given: npt.NDArray[np.float32], golden: npt.NDArray[np.float32]) -> float:
    """The largest difference of any position's logits, relative to the largest logit of the position."""
    return float((np.abs(given - golden).max(-1) / np.abs(golden).max(-1)).max())


@pytest.mark.parametrize("name", FLOAT)
def test_llama_cpp_reads_the_gguf_form_as_the_public_implementation_reads_the_checkpoint(
    name: str, tmp_path: Path
) -> None:
    path = fixture.as_gguf(name, tmp_path / "model.gguf")
    with ExitStack() as stack:
        side = open_side("llama.cpp", tmp_path, stack)
        side.ask("open", OPEN_S, model=str(path), threads=1, context=256)
        for tokens, golden in fixture.golden(name):
            out = tmp_path / "logits.npy"
            side.ask("logits", OPEN_S, tokens=tokens.tolist(), path=str(out), variant="on")
            assert error(np.load(out), golden) < TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_golden_logits_are_of_a_model_that_attends_to_its_prompt(name: str) -> None:
    """An answer that ignored what came before would be the same after the same token, wherever it stands."""
    for tokens, golden in fixture.golden(name):
        last = tokens == tokens[-1]
        assert golden.shape == (len(tokens), fixture.text(name)["vocab_size"])
        assert np.isfinite(golden).all()
        if last.sum() > 1:
            spread = np.abs(golden[last] - golden[last][0]).max()
            assert spread > 0.2 * np.abs(golden).max()
