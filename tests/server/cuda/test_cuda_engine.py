"""Whole tiny models on the emulated device: how exact an answer is, and that no company changes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from server.engine import Chunk, EngineError
from server.engine import Engine as AnyEngine
from tests.server.cuda.conftest import ISA
from tests.server.engine import test_engine_model as golden
from tests.server.engine import test_engine_step as steps
from tests.server.engine.tiny import TinyModel, WideModel

pytestmark = pytest.mark.slow

Engine = partial(AnyEngine, device="cuda-emulated")

# The rules of a step are the same for every device, and so are their tests.
globals().update(
    {
        name: test
        for name, test in vars(steps).items()
        if name.startswith("test_") and "engine" in inspect.signature(test).parameters
    }
)


@pytest.fixture
def engine(tiny_path: Path) -> Iterator[AnyEngine]:
    with Engine(tiny_path, threads=1, slots=3, context=300) as engine:
        yield engine


def tokens_of(count: int, seed: int = 0) -> list[int]:
    return [(seed * 31 + index * index * 7 + index // 9) % 75 for index in range(count)]


def divergence(model: TinyModel, folder: Path, kv: Literal["f16", "int8", "q4"] = "f16") -> float:
    """Mean KL divergence of the device's distributions from the exact ones, over 60 tokens."""
    path = folder / "model.gguf"
    model.write(path)
    tokens = np.random.default_rng(1).integers(0, model.vocabulary, 60)
    exact = golden.Reference(path).logits(tokens)
    with Engine(path, slots=1, kv=kv) as engine:
        given = engine.step([Chunk(0, 0, tokens.tolist(), "all")]).logits.astype(np.float64)
    p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (exact, given))
    return float((np.exp(p) * (p - q)).sum(-1).mean())


@pytest.mark.parametrize("name", golden.SHAPES)
def test_every_shape_is_computed_exactly(name: str, tmp_path: Path) -> None:
    assert divergence(golden.SHAPES[name], tmp_path) < 1e-6


@pytest.mark.parametrize("kind", [Kind.F16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0], ids=lambda kind: kind.name)
def test_every_type_is_computed_to_its_rounding(kind: Kind, tmp_path: Path) -> None:
    model = TinyModel(kind=kind, embedding_kind=kind, tied=False)
    assert divergence(model, tmp_path) < golden.KINDS[kind]


@pytest.mark.parametrize(
    "kind", [Kind.BF16, Kind.Q5_0, Kind.Q5_1, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K], ids=lambda kind: kind.name
)
def test_types_of_wide_blocks_are_computed_to_their_rounding(kind: Kind, tmp_path: Path) -> None:
    model = WideModel(kind=kind, embedding_kind=kind, tied=False)
    assert divergence(model, tmp_path) < (1e-6 if kind == Kind.BF16 else 3e-3)


def test_keys_and_values_at_fewer_bits_are_near(tmp_path: Path) -> None:
    model = TinyModel(kind=Kind.F32, embedding_kind=Kind.F32)
    assert 1e-9 < divergence(model, tmp_path, "int8") < 1e-3
    assert 1e-8 < divergence(model, tmp_path, "q4") < 2e-2


def test_the_engine_says_what_it_is(engine: AnyEngine) -> None:
    assert (engine.isa, engine.kv, engine.slots, engine.context, engine.vocabulary) == (
        ISA,
        "f16",
        3,
        300,
        75,
    )
    assert engine.kv_bytes_per_position == 2 * 2 * 2 * 32
    assert engine.metadata["general.architecture"] == "llama"


@pytest.mark.parametrize("kv", ["f16", "int8", "q4"])
def test_any_company_and_any_chunks_give_the_same_bytes(
    kv: Literal["f16", "int8", "q4"], tiny_path: Path
) -> None:
    """Alone and token by token (graphs) against together in all forms of chunks."""
    lengths = (133, 3, 17, 20, 1, 9, 2, 25, 12)
    prompts = [tokens_of(length, seed) for seed, length in enumerate(lengths)]
    with Engine(tiny_path, slots=1, context=260, kv=kv) as engine:
        alone = []
        for prompt in prompts:
            feed = (engine.step([Chunk(0, i, [token], "last")]) for i, token in enumerate(prompt))
            alone.append([result.logits[0].tobytes() for result in feed])
    with Engine(tiny_path, slots=len(prompts), context=260, kv=kv) as engine:

        def check(chunks: list[Chunk]) -> None:
            result = engine.step(chunks)
            for row, (slot, position) in enumerate(result.rows):
                assert result.logits[row].tobytes() == alone[slot][position], (slot, position)

        check([Chunk(slot, 0, prompt, "all") for slot, prompt in enumerate(prompts)])
        check([Chunk(0, 0, prompts[0][:126], "all"), Chunk(3, 0, prompts[3][:2], "all")])
        check([Chunk(0, 126, prompts[0][126:130], "all"), Chunk(3, 2, prompts[3][2:5], "last")])
        check([Chunk(3, 5, prompts[3][5:20], "last"), Chunk(0, 130, prompts[0][130:131], "last")])
        check([Chunk(slot, 0, prompt[:1], "last") for slot, prompt in enumerate(prompts)])
        check([Chunk(slot, 1, prompt[1:2], "last") for slot, prompt in enumerate(prompts) if slot != 4])


def test_a_fork_continues_as_its_source_would_and_leaves_it_alone(tiny_path: Path) -> None:
    shared, left, right = tokens_of(140), tokens_of(4, 1), tokens_of(4, 2)

    def rows(engine: AnyEngine, slot: int, position: int, tokens: list[int]) -> bytes:
        return engine.step([Chunk(slot, position, tokens, "all")]).logits.tobytes()

    with Engine(tiny_path, slots=3, context=300) as engine:
        expected = []
        for tail in (left, right):
            rows(engine, 0, 0, shared)
            expected.append(rows(engine, 0, 140, tail))
        rows(engine, 0, 0, shared)
        engine.fork(0, 1, 140)
        assert engine.length(1) == 140
        assert rows(engine, 1, 140, right) == expected[1]
        assert rows(engine, 0, 140, left) == expected[0]
        # Writing into whole, shared blocks makes them the writer's own.
        engine.fork(0, 2, 130)
        rows(engine, 2, 5, left)
        assert rows(engine, 0, 140, left) == expected[0]
        assert rows(engine, 1, 140, right) == expected[1]
        with pytest.raises(EngineError, match="a fork of 200 positions; the slot holds 144"):
            engine.fork(0, 1, 200)


def test_forks_and_rewinds_never_run_out_of_blocks(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    TinyModel(layers=1, heads=1, ffn=32).write(path)
    with Engine(path, slots=2, context=258) as engine:
        for turn in range(3):
            engine.step([Chunk(0, 0, tokens_of(257, turn), "none")])
            engine.fork(0, 1, 257)
            for position in (10, 200):
                engine.step([Chunk(1, position, tokens_of(1, turn), "none")])
                engine.fork(0, 1, 257)
            engine.step([Chunk(1, 257, [turn], "none")])
        assert (engine.length(0), engine.length(1)) == (257, 258)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"isa": "cuda-sm_90"}, "no instruction set 'cuda-sm_90', it is 'cuda-emulated'"),
        ({"slots": 0}, "slots is 0"),
        ({"context": 513}, "context of 513"),
    ],
)
def test_a_bad_option_is_refused(tiny_path: Path, options: dict[str, object], why: str) -> None:
    with pytest.raises(EngineError, match=why):
        Engine(tiny_path, **options)
