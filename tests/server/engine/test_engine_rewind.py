"""A sequence with a state goes back as far as the engine says, and answers as if it had never gone on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.engine import Chunk, Engine, EngineArgumentError, EngineError

CONTEXT, VOCABULARY, REWIND, CHUNK = 300, 75, 16, 64
WORK, FORK, ALONE = 0, 1, 2  # slots


@pytest.fixture(scope="module")
def engine(hybrid_path: Path) -> Iterator[Engine]:
    with Engine(hybrid_path, threads=1, slots=3, context=CONTEXT) as engine:
        yield engine


def text(seed: int, length: int) -> list[int]:
    return [(seed * 29 + index * index + index // 7) % VOCABULARY for index in range(length)]


def least_of(length: int) -> int:
    """How far a sequence that only ever grew can be taken back."""
    return max((length - 1) // CHUNK * CHUNK, length - REWIND, 0) if length else 0


def answer(engine: Engine, slot: int, position: int) -> bytes:
    return engine.step([Chunk(slot, position, [7], "last")]).logits.tobytes()


def alone(engine: Engine, tokens: list[int]) -> bytes:
    return engine.step([Chunk(ALONE, 0, [*tokens, 7], "last")]).logits.tobytes()


@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 79, 80, 81, 128, 129, 200])
def test_a_growing_sequence_goes_back_within_its_chunk(engine: Engine, length: int) -> None:
    for cut in (1, length):
        tokens = text(1, length)
        for start in range(0, length, cut):
            engine.step([Chunk(WORK, start, tokens[start : start + cut], "none")])
        assert engine.rewindable(WORK) == least_of(length)
    for position in {max(least_of(length), 1), (least_of(length) + length) // 2, length}:
        engine.fork(WORK, FORK, position)
        assert engine.length(FORK) == position
        assert answer(engine, FORK, position) == alone(engine, tokens[:position])
    for position in {max(least_of(length), 1), (least_of(length) + length + 1) // 2}:
        engine.step([Chunk(WORK, 0, tokens, "none")])
        assert answer(engine, WORK, position) == alone(engine, tokens[:position])


@pytest.mark.parametrize("position", [1, 127])
def test_further_back_is_refused_and_changes_nothing(engine: Engine, position: int) -> None:
    tokens = text(2, 140)
    engine.step([Chunk(WORK, 0, tokens, "none"), Chunk(FORK, 0, tokens[:3], "none")])
    with pytest.raises(
        EngineArgumentError, match=f"position {position}, but of the 140 .* from 128 on, or all"
    ):
        engine.step([Chunk(WORK, position, [7], "last")])
    with pytest.raises(
        EngineArgumentError, match=f"a fork at position {position}, but .* from 128 on, or all"
    ):
        engine.fork(WORK, FORK, position)
    assert (engine.length(WORK), engine.length(FORK)) == (140, 3)
    assert answer(engine, FORK, 3) == alone(engine, tokens[:3])
    assert answer(engine, WORK, 140) == alone(engine, tokens)


def test_going_back_again_does_not_reach_rows_that_are_gone(engine: Engine) -> None:
    """Rows of the convolution are kept of the last positions ever written, not of the last that are left."""
    tokens = text(3, 60)
    engine.step([Chunk(WORK, 0, tokens, "none")])
    assert engine.rewindable(WORK) == 44
    engine.step([Chunk(WORK, 44, [5], "none")])
    assert engine.rewindable(WORK) == 44
    with pytest.raises(EngineArgumentError, match="from 44 on"):
        engine.step([Chunk(WORK, 43, [5], "none")])
    engine.step([Chunk(WORK, 45, text(4, 20), "none")])
    assert engine.rewindable(WORK) == 64
    assert answer(engine, WORK, 65) == alone(engine, [*tokens[:44], 5, *text(4, 20)])


def test_beginning_anew_is_always_possible(engine: Engine) -> None:
    engine.step([Chunk(WORK, 0, text(5, 200), "none")])
    assert answer(engine, WORK, 0) == alone(engine, [])
    engine.step([Chunk(WORK, 0, text(5, 200), "none")])
    engine.fork(WORK, FORK, 0)
    assert (engine.length(FORK), engine.rewindable(FORK)) == (0, 0)
    assert answer(engine, FORK, 0) == alone(engine, [])


moves = st.lists(
    st.tuples(st.booleans(), st.floats(0, 1), st.integers(0, 9), st.integers(1, 90)), min_size=1, max_size=10
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves)
def test_any_way_back_and_forth_answers_as_the_tokens_alone(
    engine: Engine, moves: list[tuple[bool, float, int, int]]
) -> None:
    held: list[int] = []
    engine.fork(WORK, WORK, 0)
    for through_a_fork, share, seed, length in moves:
        least = engine.rewindable(WORK)
        assert least_of(len(held)) <= least <= len(held)
        position = least + round(share * (len(held) - least))
        if through_a_fork:
            engine.fork(WORK, FORK, position)
            engine.fork(FORK, WORK, position)
        more = text(seed, min(length, CONTEXT - 1 - position))
        if more:
            engine.step([Chunk(WORK, position, more, "none")])
        else:
            engine.fork(WORK, WORK, position)
        held = held[:position] + more
    assert engine.length(WORK) == len(held)
    assert answer(engine, WORK, len(held)) == alone(engine, held)


def test_keys_and_values_alone_go_back_anywhere(tiny_path: Path) -> None:
    with Engine(tiny_path, threads=1, slots=1) as engine:
        engine.step([Chunk(0, 0, text(1, 200), "none")])
        assert engine.rewindable(0) == 0
        assert answer(engine, 0, 3)
        with pytest.raises(EngineError, match="no slot 1"):
            engine.rewindable(1)
