"""The real model on ordinary text: no further from exact arithmetic than llama.cpp is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from bench.divergence import fidelity, measured
from bench.fidelity import IDS, POSITIONS, Result, answered, exact, held, measure, read_text
from bench.floors import KL_RATIO_BOUND
from bench.peers import OPEN_S, open_side
from bench.sides.protocol import Side as Child
from server.engine import Chunk, Engine
from tests.server.engine.conftest import backends

pytestmark = pytest.mark.slow

DOCUMENTS = 2
FAST = [isa for isa in backends() if isa != "plain"]


def ours(results: Sequence[Result], kv: str) -> list[Result]:
    return [result for result in results if result.name.startswith("ours") and kv in result.name]


@pytest.fixture(scope="module")
def results(model_path: Path) -> list[Result]:
    found = measure(model_path, None, plain=False, documents=DOCUMENTS)[1]
    for each in found:
        print(each)
    return found


def test_the_divergence_is_no_larger_than_llama_cpps(results: list[Result]) -> None:
    assert len(ours(results, "f16")) == len(FAST)
    assert held(results)
    for each in ours(results, "f16"):
        assert each.ratio is not None
        assert each.ratio.upper <= KL_RATIO_BOUND
        assert each.fidelity.positions == results[0].fidelity.positions == DOCUMENTS * POSITIONS


def test_the_most_likely_token_is_the_references(results: list[Result]) -> None:
    for each in ours(results, "f16"):
        assert each.fidelity.same_top >= 0.96


def test_int8_keys_and_values_cost_no_more_than_they_say(results: list[Result]) -> None:
    assert len(ours(results, "int8")) == len(FAST)
    for each in ours(results, "int8"):
        assert each.fidelity.kl.mean <= 0.004
        assert each.fidelity.same_top >= 0.95


@pytest.mark.long
def test_the_divergence_is_no_larger_over_2000_positions(model_path: Path) -> None:
    results = measure(model_path, None, plain=True)[1]
    for each in results:
        print(each)
    assert results[0].fidelity.positions >= 2000
    assert held(results)
    plain = [each for each in results if "plain, f16" in each.name]
    assert [each.fidelity.same_top >= 0.95 for each in plain] == [True]
    assert plain[0].fidelity.kl.mean <= 3 * results[0].fidelity.kl.mean


@pytest.fixture
def child(model_path: Path) -> Iterator[Child]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        side = open_side("assay", Path(folder), stack)
        side.ask("open", OPEN_S, model=str(model_path), threads=1, context=2 * POSITIONS)
        yield side


def test_the_decode_path_is_as_close_as_the_prefill_path(
    model_path: Path, child: Child, tmp_path: Path
) -> None:
    text = read_text(child)
    text = type(text)(text.names[:1], text.tokens[:1])
    reference, ids = exact(model_path, text)
    assert ids.shape == (POSITIONS, IDS)
    prefill = answered(child, text, ids, tmp_path, 1)
    whole = np.load(tmp_path / "logits.npy")
    with Engine(model_path, threads=2, slots=1) as engine:
        for position, token in enumerate(text.tokens[0][:-1]):
            row = engine.step([Chunk(0, position, [token], "last")]).logits[0]
            assert row.tobytes() == whole[position].tobytes()
    assert fidelity(reference, prefill, text.documents(1)).same_top >= 0.95


def test_the_plain_path_is_as_close(model_path: Path, child: Child, tmp_path: Path) -> None:
    text = read_text(child)
    text = type(text)(text.names[:1], text.tokens[:1])
    reference, ids = exact(model_path, text)
    few = 32
    with Engine(model_path, threads=2, slots=1, isa="plain") as plain:
        logits = plain.step([Chunk(0, 0, text.tokens[0][:few], "all")]).logits
        exactly = type(reference)(reference.chosen[:few], reference.top[:few], reference.truth[:few])
        side = measured(logits, ids[:few], text.following(1)[:few])
    result = fidelity(exactly, side, np.arange(few) // 8)
    assert result.same_top >= 0.9
    assert result.kl.mean <= 0.006
