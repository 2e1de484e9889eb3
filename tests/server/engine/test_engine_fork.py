"""A fork answers as if its tokens had been fed to it, and writing to one slot changes no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.engine import Chunk, Engine, EngineError
from tests.server.engine.tiny import TinyModel

SLOTS, CONTEXT, VOCABULARY = 4, 400, 75


@pytest.fixture(params=["f16", "int8", "q4"], scope="module")
def engine(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Engine]:
    with Engine(tiny_path, threads=1, slots=SLOTS + 1, context=CONTEXT, kv=request.param) as engine:
        yield engine


def text(seed: int, length: int) -> list[int]:
    return [(seed * 29 + index * index + index // 7) % VOCABULARY for index in range(length)]


forks = st.tuples(
    st.integers(0, SLOTS - 1),
    st.integers(0, SLOTS - 1),
    st.floats(0, 1),
    st.integers(0, 9),
    st.integers(1, 150),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(forks, min_size=1, max_size=8))
def test_every_slot_goes_on_from_the_tokens_it_holds(
    engine: Engine, forks: list[tuple[int, int, float, int, int]]
) -> None:
    held: list[list[int]] = []
    for slot in range(SLOTS):
        held.append(text(slot, 60 * slot + 1))
        engine.step([Chunk(slot, 0, held[slot], "none")])
    for source, slot, share, seed, length in forks:
        positions = round(share * len(held[source]))
        engine.fork(source, slot, positions)
        held[slot] = held[source][:positions]
        more = text(seed, min(length, CONTEXT - 1 - positions))
        if more:
            engine.step([Chunk(slot, positions, more, "none")])
        held[slot] = held[slot] + more
    for slot, tokens in enumerate(held):
        assert engine.length(slot) == len(tokens)
        went_on = engine.step([Chunk(slot, len(tokens), [7], "last")]).logits.tobytes()
        alone = engine.step([Chunk(SLOTS, 0, [*tokens, 7], "last")]).logits.tobytes()
        assert went_on == alone


def test_rewriting_a_shared_block_leaves_the_other_slot_alone(engine: Engine) -> None:
    tokens = text(3, 300)
    engine.step([Chunk(0, 0, tokens, "none")])
    engine.fork(0, 1, 290)
    engine.step([Chunk(1, 10, text(5, 20), "none")])
    after = engine.step([Chunk(0, 300, [7], "last")]).logits.tobytes()
    assert after == engine.step([Chunk(2, 0, [*tokens, 7], "last")]).logits.tobytes()


def test_a_fork_of_what_is_not_there_is_refused_and_changes_nothing(engine: Engine) -> None:
    engine.step([Chunk(0, 0, [1, 2, 3], "none"), Chunk(1, 0, [4, 5], "none")])
    for source, slot, positions, words in (
        (0, 1, 4, "the slot holds 3"),
        (0, 1, -1, "the slot holds 3"),
        (SLOTS + 1, 1, 0, "there are 5"),
        (0, -1, 0, "there are 5"),
    ):
        with pytest.raises(EngineError, match=words):
            engine.fork(source, slot, positions)
    assert (engine.length(0), engine.length(1)) == (3, 2)
    with pytest.raises(EngineError, match="no slot 9"):
        engine.length(9)


def test_keys_and_values_take_the_bytes_of_their_form(engine: Engine) -> None:
    items = 2 * 2 * 32  # of a position: layers, keys and values, one head of 32
    scales = items // 32
    told = {"f16": 2 * items, "int8": items + 4 * scales, "q4": items // 2 + 4 * scales}
    assert engine.kv_bytes_per_position == told[engine.kv]


def test_an_unknown_kind_of_keys_and_values_is_refused(tiny_path: Path) -> None:
    with pytest.raises(EngineError, match="'f8', not 'f16', 'int8' or 'q4'"):
        Engine(tiny_path, threads=1, slots=1, kv=cast("Literal['f16']", "f8"))


def test_heads_that_are_no_whole_groups_are_not_kept_at_4_bits(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    TinyModel(heads=4, kv_heads=4, head_dim=40).write(path)
    with pytest.raises(EngineError, match="'q4' of heads of 40, no multiple of 32"):
        Engine(path, threads=1, slots=1, kv="q4")
    Engine(path, threads=1, slots=1, kv="int8").close()
