"""What a step answers, forgets and refuses, and what loading and closing do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from server.engine import Chunk, Engine, EngineError


@pytest.fixture
def engine(tiny_path: Path) -> Iterator[Engine]:
    with Engine(tiny_path, threads=2, slots=3, context=300) as engine:
        yield engine


def test_rows_name_the_slot_and_position_of_each_logits_row(engine: Engine) -> None:
    result = engine.step(
        [Chunk(2, 0, [1, 2, 3], "all"), Chunk(0, 0, [4, 5], "none"), Chunk(1, 0, [6, 7], "last")]
    )
    assert result.rows == ((2, 0), (2, 1), (2, 2), (1, 1))
    assert result.logits.shape == (4, 75)
    assert result.logits.dtype == np.float32
    np.testing.assert_array_equal(result.greedy, result.logits.argmax(-1))


def test_no_chunks_is_no_work(engine: Engine) -> None:
    assert engine.step([]).rows == ()


def test_writing_a_position_forgets_everything_from_it_on(engine: Engine) -> None:
    first = engine.step([Chunk(0, 0, [1, 2, 3], "last")]).logits.tobytes()
    engine.step([Chunk(0, 0, [9, 8, 7, 6, 5], "none")])
    again = engine.step([Chunk(0, 0, [1, 2, 3], "last")]).logits.tobytes()
    assert again == first
    with pytest.raises(EngineError, match="begins at position 4, but the slot holds 3"):
        engine.step([Chunk(0, 4, [1], "last")])


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([Chunk(3, 0, [1], "last")], "slot 3; there are 3"),
        ([Chunk(-1, 0, [1], "last")], "slot -1"),
        ([Chunk(0, 0, [1], "last"), Chunk(0, 1, [1], "last")], "slot 0 is twice"),
        ([Chunk(0, 1, [1], "last")], "begins at position 1, but the slot holds 0"),
        ([Chunk(0, -1, [1], "last")], "begins at position -1"),
        ([Chunk(0, 0, [], "last")], "has no tokens"),
        ([Chunk(0, 0, [75], "last")], "the token 75; the vocabulary has 75"),
        ([Chunk(0, 0, [-1], "none")], "the token -1"),
        ([Chunk(0, 0, [2**40], "none")], "no 32-bit integers"),
        ([Chunk(0, 0, [0] * 301, "none")], "ends at position 301, past the context of 300"),
        ([Chunk(0, 0, [1], "some")], "logits of kind 'some'"),
    ],
)
def test_a_broken_rule_is_refused_and_nothing_is_written(
    engine: Engine, chunks: list[Chunk], why: str
) -> None:
    with pytest.raises(EngineError, match=why):
        engine.step([Chunk(1, 0, [1], "none"), *chunks])
    with pytest.raises(EngineError, match="the slot holds 0"):
        engine.step([Chunk(1, 1, [1], "none")])


def test_the_context_can_be_filled_to_its_last_position(engine: Engine) -> None:
    assert engine.step([Chunk(0, 0, [0] * 300, "last")]).rows == ((0, 299),)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"slots": 0}, "slots is 0"),
        ({"slots": 4096}, "slots is 4096"),
        ({"context": 513}, "context of 513"),
        ({"context": -1}, "context of -1"),
        ({"isa": "mmx"}, "no instruction set 'mmx'"),
        ({"threads": 2**32 + 2}, "threads: 4294967298 is no 32-bit number"),
        ({"slots": 2**32 + 2}, "slots: 4294967298 is no 32-bit number"),
        ({"context": 2**32}, "context: 4294967296 is no 32-bit number"),
    ],
)
def test_a_bad_option_is_refused(tiny_path: Path, options: dict[str, object], why: str) -> None:
    with pytest.raises(EngineError, match=why):
        Engine(tiny_path, **options)


def test_a_number_past_32_bits_is_not_taken_for_its_low_bits(engine: Engine) -> None:
    engine.step([Chunk(0, 0, [1, 2, 3], "none")])
    for chunk in (Chunk(2**32, 0, [1], "last"), Chunk(0, 2**32, [1], "last")):
        with pytest.raises(EngineError, match="4294967296 is no 32-bit number"):
            engine.step([chunk])
    for fork in ((2**32, 1, 2), (0, 2**32 + 1, 2), (0, 1, 2**32 + 2)):
        with pytest.raises(EngineError, match="no 32-bit number"):
            engine.fork(*fork)
    with pytest.raises(EngineError, match="no 32-bit number"):
        engine.length(2**32)
    assert engine.length(0) == 3


def test_a_closed_engine_refuses_work_and_closes_twice(tiny_path: Path) -> None:
    engine = Engine(tiny_path, threads=2)
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.step([Chunk(0, 0, [1], "last")])


def test_closing_frees_the_threads_and_the_memory(tiny_path: Path) -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cycle() -> None:
        with Engine(tiny_path, threads=3) as engine:
            engine.step([Chunk(0, 0, [1] * 200, "all")])

    cycle()
    before = threads(), resident_bytes()
    for _ in range(20):
        cycle()
    assert threads() == before[0]
    assert resident_bytes() - before[1] < 8 << 20


def test_an_idle_engine_uses_no_cpu(engine: Engine) -> None:
    engine.step([Chunk(0, 0, [1, 2, 3], "last")])
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
