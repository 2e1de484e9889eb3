"""Whole tiny models of the Qwen families on the emulated device: how exact, and the same in any company."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind

from server.engine import Chunk, EngineError
from server.engine import Engine as AnyEngine
from tests.server.cuda import test_cuda_plan as plans
from tests.server.cuda.test_cuda_engine import Engine, divergence, tokens_of
from tests.server.engine import test_engine_rewind as rewind
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_qwen import TinyQwen3, TinyQwen35

pytestmark = pytest.mark.slow

SMALL = TinyQwen35(layers=2, heads=2, head_dim=32, ffn=32, rope_dim=16, sections=(3, 3, 2, 0), value_heads=4)
SHAPES: dict[str, TinyModel] = {
    "qwen3": TinyQwen3(kind=Kind.F32, embedding_kind=Kind.F32),
    "qwen3-wide-heads": TinyQwen3(
        kind=Kind.F32, embedding_kind=Kind.F32, heads=4, kv_heads=2, head_dim=128, tied=False
    ),
    "qwen35": TinyQwen35(kind=Kind.F32, embedding_kind=Kind.F32),
    "qwen35-wide-keys": TinyQwen35(
        kind=Kind.F32, embedding_kind=Kind.F32, layers=3, interval=3, key_dim=64, value_heads=2, conv=3
    ),
}


@pytest.fixture
def small_path(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    SMALL.write(path)
    return path


@pytest.fixture
def engine(small_path: Path) -> Iterator[AnyEngine]:
    with Engine(small_path, threads=1, slots=3, context=100) as engine:
        yield engine


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_computed_exactly(name: str, tmp_path: Path) -> None:
    assert divergence(SHAPES[name], tmp_path) < 1e-6


@pytest.mark.parametrize("model", [TinyQwen3(), TinyQwen35()], ids=["qwen3", "qwen35"])
def test_four_bits_are_computed_to_their_rounding(model: TinyModel, tmp_path: Path) -> None:
    assert divergence(model, tmp_path) < 3e-3


def test_any_company_and_any_chunks_give_the_same_bytes(small_path: Path) -> None:
    """Alone and token by token (graphs) against together, in chunks across the delta rule's own."""
    lengths = (133, 3, 65, 9)
    prompts = [tokens_of(length, seed) for seed, length in enumerate(lengths)]
    with Engine(small_path, slots=1, context=140) as engine:
        alone = []
        for prompt in prompts:
            feed = (engine.step([Chunk(0, i, [token], "last")]) for i, token in enumerate(prompt))
            alone.append([result.logits[0].tobytes() for result in feed])
    with Engine(small_path, slots=len(prompts), context=140) as engine:

        def check(chunks: list[Chunk]) -> None:
            result = engine.step(chunks)
            for row, (slot, position) in enumerate(result.rows):
                assert result.logits[row].tobytes() == alone[slot][position], (slot, position)

        check([Chunk(slot, 0, prompt, "all") for slot, prompt in enumerate(prompts)])
        check([Chunk(0, 0, prompts[0][:62], "all"), Chunk(3, 0, prompts[3][:2], "all")])
        check([Chunk(0, 62, prompts[0][62:66], "all"), Chunk(3, 2, prompts[3][2:5], "last")])
        check([Chunk(3, 5, prompts[3][5:9], "last"), Chunk(0, 66, prompts[0][66:67], "last")])
        check([Chunk(0, 67, prompts[0][67:128], "last"), Chunk(2, 0, prompts[2][:64], "last")])
        check([Chunk(2, 64, prompts[2][64:], "last"), Chunk(0, 128, prompts[0][128:129], "last")])


def test_a_fork_takes_the_state_along_and_leaves_its_source_alone(small_path: Path) -> None:
    shared, left, right = tokens_of(70), tokens_of(4, 1), tokens_of(4, 2)

    def rows(engine: AnyEngine, slot: int, position: int, tokens: list[int]) -> bytes:
        return engine.step([Chunk(slot, position, tokens, "all")]).logits.tobytes()

    with Engine(small_path, slots=3, context=100) as engine:
        expected = []
        for tail in (left, right):
            rows(engine, 0, 0, shared)
            expected.append(rows(engine, 0, 70, tail))
        rows(engine, 0, 0, shared)
        engine.fork(0, 2, 70)
        assert rows(engine, 2, 70, right) == expected[1]
        assert rows(engine, 0, 70, left) == expected[0]
        engine.fork(0, 1, 70)  # taken back on the way
        assert rows(engine, 1, 70, right) == expected[1]


def answer(engine: AnyEngine, slot: int, position: int) -> bytes:
    return engine.step([Chunk(slot, position, [7], "last")]).logits.tobytes()


@pytest.mark.parametrize("length", [20, 83])
def test_a_sequence_goes_back_within_its_chunk(engine: AnyEngine, length: int) -> None:
    tokens, least = tokens_of(length), rewind.least_of(length)
    for position in {least, (least + length) // 2}:
        engine.step([Chunk(0, 0, tokens, "none"), Chunk(2, 0, tokens[:position], "none")])
        assert engine.rewindable(0) == least
        engine.fork(0, 1, position)
        alone = answer(engine, 2, position)
        assert answer(engine, 0, position) == alone
        assert answer(engine, 1, position) == alone
    for further in {1, least - 1}:
        with pytest.raises(EngineError, match=f"position {further}, but of the .* from {least} on, or all"):
            engine.step([Chunk(0, further, [7], "last")])
        with pytest.raises(
            EngineError, match=f"a fork at position {further}, but .* from {least} on, or all"
        ):
            engine.fork(0, 1, further)


def test_going_back_again_does_not_reach_rows_that_are_gone(engine: AnyEngine) -> None:
    tokens, more = tokens_of(60), tokens_of(20, 4)
    engine.step([Chunk(0, 0, tokens, "none")])
    engine.step([Chunk(0, 44, [5], "none")])
    assert engine.rewindable(0) == 44
    with pytest.raises(EngineError, match="from 44 on"):
        engine.step([Chunk(0, 43, [5], "none")])
    engine.step([Chunk(0, 45, more, "none"), Chunk(2, 0, [*tokens[:44], 5, *more], "none")])
    assert engine.rewindable(0) == 64
    assert answer(engine, 0, 65) == answer(engine, 2, 65)
    assert answer(engine, 0, 0) == answer(engine, 1, 0)
    assert engine.rewindable(0) == 0


def test_state_is_planned_and_allocated(small_path: Path, emulated: Path) -> None:
    plans.test_the_plan_is_what_is_allocated("many slots", small_path, emulated)
    memory = plans.planned(small_path, plans.HOLDINGS["many slots"])
    assert memory.state_bytes == 40 * memory.state_bytes_per_slot > 0
