"""The real model on ordinary text: no further from exact arithmetic than llama.cpp is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bench.fidelity import Fidelity, fidelity, log_softmax, top_ids
from server.engine import Chunk, Engine
from server.tokenizer import Tokenizer
from tests.server.engine import llama_cpp
from tests.server.engine.reference import Reference

pytestmark = pytest.mark.slow

PROSE = Path(__file__).parents[2] / "assets" / "prose.txt"
POSITIONS = 320
IDS = 128


@dataclass(frozen=True)
class Exact:
    """The reference's answer over the prose."""

    tokens: list[int]
    ids: npt.NDArray[np.int64]  # its likeliest, [positions, IDS]
    log_probabilities: npt.NDArray[np.float64]  # of those ids


@pytest.fixture(scope="module")
def engine(model_path: Path) -> Iterator[Engine]:
    with Engine(model_path, threads=2, slots=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def exact(model_path: Path, engine: Engine) -> Exact:
    tokens = Tokenizer(engine.metadata).encode(PROSE.read_text())[:POSITIONS]
    assert len(tokens) == POSITIONS
    everything = log_softmax(Reference(model_path).logits(np.array(tokens)))
    ids = top_ids(everything, IDS)
    return Exact(tokens, ids, np.take_along_axis(everything, ids, -1))


def measured(exact: Exact, logits: npt.NDArray[np.float32]) -> Fidelity:
    chosen = np.take_along_axis(log_softmax(logits), exact.ids, -1)
    return fidelity(exact.log_probabilities, chosen, exact.ids[:, 0], logits.argmax(-1).astype(np.int64))


@pytest.fixture(scope="module")
def ours(exact: Exact, engine: Engine) -> Fidelity:
    return measured(exact, engine.step([Chunk(0, 0, exact.tokens, "all")]).logits)


@pytest.fixture(scope="module")
def theirs(exact: Exact, model_path: Path) -> Fidelity:
    answer = llama_cpp.ask(model_path, exact.tokens, exact.ids)
    return fidelity(exact.log_probabilities, answer.log_probabilities, exact.ids[:, 0], answer.top)


def test_the_divergence_is_at_most_a_tenth_above_llama_cpps(ours: Fidelity, theirs: Fidelity) -> None:
    print(f"ours: {ours}\nllama.cpp: {theirs}")
    assert ours.positions == theirs.positions == POSITIONS
    assert ours.kl_mean <= 1.1 * theirs.kl_mean


def test_the_most_likely_token_is_the_references(ours: Fidelity) -> None:
    assert ours.same_top >= 0.98


def test_the_decode_path_is_as_close_as_the_prefill_path(
    exact: Exact, engine: Engine, ours: Fidelity
) -> None:
    steps = [
        engine.step([Chunk(1, i, [token], "last")]).logits[0].copy() for i, token in enumerate(exact.tokens)
    ]
    assert measured(exact, np.stack(steps)) == ours


def test_the_plain_path_is_as_close(exact: Exact, model_path: Path, theirs: Fidelity) -> None:
    short = Exact(exact.tokens[:64], exact.ids[:64], exact.log_probabilities[:64])
    with Engine(model_path, threads=2, slots=1, isa="plain") as plain:
        result = measured(short, plain.step([Chunk(0, 0, short.tokens, "all")]).logits)
    assert result.same_top >= 0.95
    assert result.kl_mean <= 3 * theirs.kl_mean
