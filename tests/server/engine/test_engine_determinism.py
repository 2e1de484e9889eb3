"""A token's logits are the same bytes in any company, any order, any chunks, at any thread count."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.engine import Chunk, Engine
from tests.server.engine.conftest import backends
from tests.server.engine.tiny import TinyModel

SLOTS = 16
CONTEXT = 420  # four position blocks, the last one partly filled
VOCABULARY = 75

prompts = st.lists(
    st.builds(
        lambda seed, length: [
            (seed * 31 + index * index * 7 + index // 9) % VOCABULARY for index in range(length)
        ],
        st.integers(0, 40),
        st.one_of(st.integers(1, 12), st.integers(120, 140), st.integers(250, CONTEXT)),
    ),
    min_size=1,
    max_size=SLOTS,
)


class Pair:
    """One engine with one thread, whose answers alone are the truth, and one with two."""

    def __init__(self, path: Path, isa: str) -> None:
        self.engines = [Engine(path, threads=n, slots=SLOTS, context=CONTEXT, isa=isa) for n in (1, 2)]
        self.alone = cache(self._alone)

    def _alone(self, prompt: tuple[int, ...]) -> list[bytes]:
        """Each token's logits when its sequence is fed token by token, alone, on one thread."""
        feed = (self.engines[0].step([Chunk(0, i, [token], "last")]) for i, token in enumerate(prompt))
        return [result.logits[0].tobytes() for result in feed]


@pytest.fixture(params=backends(), scope="module")
def pair(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Pair]:
    pair = Pair(tiny_path, str(request.param))
    yield pair
    for engine in pair.engines:
        engine.close()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), prompts=prompts, threads=st.sampled_from([1, 2]))
def test_any_schedule_gives_the_same_bytes(
    pair: Pair, data: st.DataObject, prompts: list[list[int]], threads: int
) -> None:
    engine = pair.engines[threads - 1]
    slots = data.draw(st.permutations(range(SLOTS)))[: len(prompts)]
    expected = [pair.alone(tuple(prompt)) for prompt in prompts]
    done = [0] * len(prompts)
    checked = 0
    while any(position < len(prompt) for position, prompt in zip(done, prompts, strict=True)):
        open_ones = [i for i, prompt in enumerate(prompts) if done[i] < len(prompt)]
        chosen = data.draw(st.lists(st.sampled_from(open_ones), min_size=1, unique=True))
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
            assert result.logits[row].tobytes() == expected[owner[slot]][position], (slot, position)
            checked += 1
    assert checked >= len(prompts)


def test_a_long_prompt_is_the_same_across_passes(tmp_path: Path, isa: str) -> None:
    path = tmp_path / "long.gguf"
    TinyModel(context=2048).write(path)
    tokens = [(index * index + index // 3) % VOCABULARY for index in range(1300)]
    answers = set()
    for threads, chunk in ((1, 1300), (2, 1300), (2, 500), (1, 97)):
        with Engine(path, threads=threads, slots=1, isa=isa) as engine:
            rows = b""
            for start in range(0, len(tokens), chunk):
                rows += engine.step([Chunk(0, start, tokens[start : start + chunk], "all")]).logits.tobytes()
            answers.add(rows)
    assert len(answers) == 1


@pytest.mark.slow
def test_sixteen_sequences_of_the_real_model_decode_as_each_alone(model_path: Path) -> None:
    start = [[(seed * 977 + index * 131) % 49000 for index in range(5 + 9 * seed)] for seed in range(SLOTS)]
    with Engine(model_path, threads=1, slots=1) as engine:
        alone = []
        for tokens in start:
            result = engine.step([Chunk(0, 0, tokens, "last")])
            stream = [result.logits[0].tobytes()]
            for step in range(4):
                result = engine.step([Chunk(0, len(tokens) + step, [int(result.greedy[0])], "last")])
                stream.append(result.logits[0].tobytes())
            alone.append(stream)
    with Engine(model_path, threads=2, slots=SLOTS) as engine:
        result = engine.step([Chunk(slot, 0, tokens, "last") for slot, tokens in enumerate(start)])
        for step in range(5):
            for slot in range(SLOTS):
                assert result.logits[slot].tobytes() == alone[slot][step]
            feed = [
                Chunk(slot, len(start[slot]) + step, [int(result.greedy[slot])], "last")
                for slot in range(SLOTS)
            ]
            result = engine.step(feed)
