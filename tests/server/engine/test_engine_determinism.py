"""A token's logits are the same bytes in any company, order and chunks, forked or not, at any threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.engine import Chunk, Engine
from tests.server.engine.conftest import backends
from tests.server.engine.tiny import TinyModel

SLOTS = 16
CONTEXT = 420  # four position blocks, the last one partly filled
VOCABULARY = 75
Kv = Literal["f16", "int8", "q4"]
KV: tuple[Kv, ...] = ("f16", "int8", "q4")
REAL_CONTEXT = 200

# Prompts of one seed begin alike, so that one can be forked off another.
prompts = st.lists(
    st.builds(
        lambda seed, length: [
            (seed * 31 + index * index * 7 + index // 9) % VOCABULARY for index in range(length)
        ],
        st.integers(0, 5),
        st.one_of(st.integers(1, 12), st.integers(120, 140), st.integers(250, CONTEXT)),
    ),
    min_size=1,
    max_size=SLOTS,
)


class Pair:
    """One engine with one thread, whose answers alone are the truth, and one with two."""

    def __init__(self, path: Path, isa: str, kv: Kv, context: int) -> None:
        self.engines = [
            Engine(
                path,
                threads=threads,
                slots=SLOTS,
                context=context,
                isa=isa,
                kv=kv,
            )
            for threads in (1, 2)
        ]
        assert {engine.kv for engine in self.engines} == {kv}
        assert {engine.isa for engine in self.engines} == {isa}
        self.alone = cache(self._alone)

    def _alone(self, prompt: tuple[int, ...]) -> list[bytes]:
        """Each token's logits when its sequence is fed token by token, alone, on one thread."""
        feed = (self.engines[0].step([Chunk(0, i, [token], "last")]) for i, token in enumerate(prompt))
        return [result.logits[0].tobytes() for result in feed]

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


FAST = [(isa, kv) for isa in backends() if isa != "plain" for kv in KV]


@pytest.fixture(params=FAST, ids="-".join, scope="module")
def pair(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Pair]:
    pair = Pair(tiny_path, *request.param, CONTEXT)
    yield pair
    pair.close()


@pytest.fixture(params=[isa for isa in backends() if isa != "plain"], scope="module")
def hybrid_pair(request: pytest.FixtureRequest, hybrid_path: Path) -> Iterator[Pair]:
    pair = Pair(hybrid_path, request.param, "f16", CONTEXT)
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def plain_hybrid_pair(hybrid_path: Path) -> Iterator[Pair]:
    pair = Pair(hybrid_path, "plain", "f16", CONTEXT)
    yield pair
    pair.close()


@pytest.fixture(params=KV, scope="module")
def plain_pair(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Pair]:
    pair = Pair(tiny_path, "plain", request.param, CONTEXT)
    yield pair
    pair.close()


@pytest.fixture(params=FAST, ids="-".join, scope="module")
def real_pair(request: pytest.FixtureRequest, model_path: Path) -> Iterator[Pair]:
    pair = Pair(model_path, *request.param, REAL_CONTEXT)
    yield pair
    pair.close()


def check(pair: Pair, data: st.DataObject, prompts: Sequence[Sequence[int]], threads: int) -> None:
    """Any schedule gives what each prompt gives alone."""
    expected = [pair.alone(tuple(prompt)) for prompt in prompts]
    check_any_schedule(pair.engines[threads - 1], expected, prompts, data)


def check_any_schedule(
    engine: Engine,
    alone: Sequence[Sequence[bytes]],
    prompts: Sequence[Sequence[int]],
    data: st.DataObject,
) -> None:
    """Feed the prompts with drawn arrivals, company, chunks and forks; compare every row asked for."""
    slots = data.draw(st.permutations(range(SLOTS)), label="slots")[: len(prompts)]
    done = [0] * len(prompts)
    checked = 0
    while any(position < len(prompt) for position, prompt in zip(done, prompts, strict=True)):
        open_ones = [i for i, prompt in enumerate(prompts) if done[i] < len(prompt)]
        chosen = data.draw(st.lists(st.sampled_from(open_ones), min_size=1, unique=True), label="company")
        for i in chosen:
            if done[i] == 0:
                done[i] = forked(engine, slots, prompts, done, i, data)
        chunks = []
        for i in chosen:
            left = len(prompts[i]) - done[i]
            count = left if data.draw(st.booleans()) else data.draw(st.integers(1, min(left, 140)))
            wanted = data.draw(st.sampled_from(["last", "all", "all"]))
            chunks.append(Chunk(slots[i], done[i], prompts[i][done[i] : done[i] + count], wanted))
            done[i] += count
        result = engine.step(chunks)
        owner = {slot: i for i, slot in enumerate(slots)}
        for row, (slot, position) in enumerate(result.rows):
            assert result.logits[row].tobytes() == alone[owner[slot]][position], (slot, position)
            checked += 1
    assert checked >= len(prompts)


def forked(
    engine: Engine,
    slots: Sequence[int],
    prompts: Sequence[Sequence[int]],
    done: Sequence[int],
    new: int,
    data: st.DataObject,
) -> int:
    """Perhaps begin prompt `new` as a fork of another's beginning; how many positions it then holds."""
    shared = {
        i: common(prompts[new], prompts[i][: done[i]]) for i in range(len(prompts)) if i != new and done[i]
    }
    sources = [i for i, length in shared.items() if length]
    if not sources or not data.draw(st.booleans(), label="fork"):
        return 0
    source = data.draw(st.sampled_from(sources), label="source")
    # The last token is always fed: a fork brings no logits.
    most = min(shared[source], len(prompts[new]) - 1)
    least = engine.rewindable(slots[source])
    if least > most:
        return 0
    positions = data.draw(st.integers(least, most), label="positions")
    engine.fork(slots[source], slots[new], positions)
    return positions


def common(first: Sequence[int], second: Sequence[int]) -> int:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return length


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), prompts=prompts, threads=st.sampled_from([1, 2]))
def test_any_schedule_gives_the_same_bytes(
    pair: Pair, data: st.DataObject, prompts: list[list[int]], threads: int
) -> None:
    check(pair, data, prompts, threads)


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), prompts=prompts, threads=st.sampled_from([1, 2]))
def test_any_schedule_of_the_plain_path_gives_the_same_bytes(
    plain_pair: Pair, data: st.DataObject, prompts: list[list[int]], threads: int
) -> None:
    check(plain_pair, data, prompts, threads)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), prompts=prompts, threads=st.sampled_from([1, 2]))
def test_any_schedule_of_a_hybrid_gives_the_same_bytes(
    hybrid_pair: Pair, data: st.DataObject, prompts: list[list[int]], threads: int
) -> None:
    check(hybrid_pair, data, prompts, threads)


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), prompts=prompts, threads=st.sampled_from([1, 2]))
def test_any_schedule_of_a_hybrid_on_the_plain_path_gives_the_same_bytes(
    plain_hybrid_pair: Pair, data: st.DataObject, prompts: list[list[int]], threads: int
) -> None:
    check(plain_hybrid_pair, data, prompts, threads)


def real_prompts(most: int) -> st.SearchStrategy[list[list[int]]]:
    """Prompts of the real model's tokens; those of one seed begin alike."""
    return st.lists(
        st.builds(
            lambda seed, length: [(seed * 977 + index * 131) % 49000 for index in range(length)],
            st.integers(0, 3),
            st.integers(1, most),
        ),
        min_size=1,
        max_size=SLOTS,
    )


@pytest.mark.slow
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), prompts=real_prompts(24), threads=st.sampled_from([1, 2, 2]))
def test_any_schedule_of_the_real_model_gives_the_same_bytes(
    real_pair: Pair, data: st.DataObject, prompts: list[list[int]], threads: int
) -> None:
    check(real_pair, data, prompts, threads)


@pytest.mark.long
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), prompts=real_prompts(REAL_CONTEXT), threads=st.sampled_from([1, 2]))
def test_many_schedules_of_the_real_model_give_the_same_bytes(
    real_pair: Pair, data: st.DataObject, prompts: list[list[int]], threads: int
) -> None:
    check(real_pair, data, prompts, threads)


@pytest.mark.parametrize("kv", KV)
def test_a_long_prompt_is_the_same_across_passes(tmp_path: Path, isa: str, kv: Kv) -> None:
    path = tmp_path / "long.gguf"
    TinyModel(context=2048).write(path)
    tokens = [(index * index + index // 3) % VOCABULARY for index in range(1300)]
    answers = set()
    for threads, chunk in ((1, 1300), (2, 1300), (2, 500), (1, 97)):
        with Engine(path, threads=threads, slots=1, isa=isa, kv=kv) as engine:
            rows = b""
            for start in range(0, len(tokens), chunk):
                rows += engine.step([Chunk(0, start, tokens[start : start + chunk], "all")]).logits.tobytes()
            answers.add(rows)
    assert len(answers) == 1


@pytest.mark.slow
def test_sixteen_sequences_of_the_real_model_decode_as_each_alone(real_pair: Pair) -> None:
    start = [[(seed * 977 + index * 131) % 49000 for index in range(5 + 5 * seed)] for seed in range(SLOTS)]
    one, two = real_pair.engines
    alone = []
    for tokens in start:
        result = one.step([Chunk(0, 0, tokens, "last")])
        stream = [result.logits[0].tobytes()]
        for step in range(2):
            result = one.step([Chunk(0, len(tokens) + step, [int(result.greedy[0])], "last")])
            stream.append(result.logits[0].tobytes())
        alone.append(stream)
    result = two.step([Chunk(slot, 0, tokens, "last") for slot, tokens in enumerate(start)])
    for step in range(3):
        for slot in range(SLOTS):
            assert result.logits[slot].tobytes() == alone[slot][step]
        feed = [
            Chunk(slot, len(start[slot]) + step, [int(result.greedy[slot])], "last") for slot in range(SLOTS)
        ]
        result = two.step(feed)
