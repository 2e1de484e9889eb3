"""An output head of floats read as Q8_0: the bytes of the `gguf` package, and all that follows from them."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from gguf.quants import quantize as package_quantize

from server import abi
from server.__main__ import main
from server.engine import Chunk, Engine, EngineArgumentError
from server.guesser import Speculation
from server.loading import ModelOptions, load
from server.metrics import Metrics
from server.plan import Holding, Step, plan
from tests.server.engine import tiny_tokenizer
from tests.server.engine.headed import FLOATS, HeadedModel, NarrowModel
from tests.server.engine.rows import RefusedError, native_rows
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_checkpoint import TinyCheckpoint

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
HEADS: tuple[Literal["stored", "q8_0"], ...] = ("stored", "q8_0")
BLOCK, BLOCK_BYTES = 32, 34
SIZES = {Kind.F32: 4, Kind.F16: 2, Kind.BF16: 2}


def source_of(path: Path, kind: Kind, stored: Bytes, before: int = 0) -> abi.TensorSource:
    """A tensor [rows, bytes] in a file of its own, behind so many bytes."""
    path.write_bytes(b"\0" * before + stored.tobytes())
    return abi.TensorSource(
        name=b"output.weight",
        path=str(path).encode(),
        offset=before,
        size=stored.nbytes,
        columns=stored.shape[1] // SIZES[kind],
        rows=len(stored),
        type=int(kind),
        storage=0,
        factor=1.0,
    )


def read_as_q8(source: abi.TensorSource, first: int, count: int) -> Bytes:
    return native_rows(source, first, count, source.columns // BLOCK * BLOCK_BYTES, "q8_0")


def stored_as(kind: Kind, values: Floats) -> tuple[Bytes, Floats]:
    """Values [rows, columns] as bytes of a float type, and what those are."""
    raw = np.ascontiguousarray(package_quantize(values, kind)).view(np.uint8).reshape(len(values), -1)
    typed = raw.view({Kind.F32: np.float32, Kind.F16: np.float16}.get(kind, np.uint8))
    return raw, np.asarray(dequantize(typed, kind), np.float32)


def every(kind: Kind) -> tuple[Bytes, Floats]:
    """Each number of 16 bits, the finite ones of a magnitude together and in any order."""
    bits = np.arange(65536, dtype=np.uint16)
    wide = bits.view(np.float16).astype(np.float32) if kind == Kind.F16 else floats_of(bits)
    order = np.argsort(np.where(np.isnan(wide), np.inf, np.abs(wide)), kind="stable")
    for block in order.reshape(-1, BLOCK):
        np.random.default_rng(int(block[0])).shuffle(block)
    return bits[order].view(np.uint8).reshape(64, -1), wide[order].reshape(64, -1)


def floats_of(bits: npt.NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def hostile() -> Floats:
    """Blocks that a quantiser could get wrong, one a row."""
    random = np.random.default_rng(3)
    normal = random.standard_normal(BLOCK).astype(np.float32)
    steps = np.arange(BLOCK, dtype=np.float32) - 15.5  # ties, under a scale of 1
    rows = [
        np.zeros(BLOCK),
        np.full(BLOCK, -0.0),
        np.where(np.arange(BLOCK) == 7, 127, steps),
        np.where(np.arange(BLOCK) == 7, -127, -steps),
        np.where(np.arange(BLOCK) == 7, 254, steps * 2),
        np.nextafter(np.where(np.arange(BLOCK) == 7, 127, steps).astype(np.float32), np.float32(0)),
        np.nextafter(np.where(np.arange(BLOCK) == 7, 127, steps).astype(np.float32), np.float32(1e9)),
        np.where(np.arange(BLOCK) == 31, 1e30, normal),
        np.full(BLOCK, 3.4028235e38),
        np.where(np.arange(BLOCK) % 2, 127 * 65504.0, -1),
        np.where(np.arange(BLOCK) % 2, 127 * 65519.0, -1),
        np.where(np.arange(BLOCK) % 2, 127 * 65521.0, -1),
        *(normal * np.float32(2.0**power) for power in (-110, -60, -40, -30, -24, -18, -14, 14, 100)),
        *(normal * np.float32(2.0**power) for power in (-149, -140, -130, -126, -122, -121, -120)),
    ]
    return np.array(rows, np.float32)


def assert_as_the_package(given: Bytes, values: Floats) -> int:
    """Holds where each block has the package's bytes; where its integers have no quotients ours are 0.

    Returns:
        How many blocks were compared whole.
    """
    expected = np.asarray(package_quantize(values, Kind.Q8_0)).reshape(-1, BLOCK_BYTES)
    blocks, given = values.reshape(-1, BLOCK), given.reshape(-1, BLOCK_BYTES)
    missing = np.isnan(blocks).any(-1)
    np.testing.assert_array_equal(given[~missing, :2], expected[~missing, :2])
    assert np.isnan(np.ascontiguousarray(given[missing, :2]).view(np.float16)).all()
    scale = np.abs(blocks).max(-1) / np.float32(127)
    defined = np.isfinite(scale) & ((scale == 0) | np.isfinite(1 / scale))
    np.testing.assert_array_equal(given[defined], expected[defined])
    assert not given[~defined, 2:].any()
    return int(defined.sum())


whims = pytest.mark.filterwarnings(
    "ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning"
)


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_rows_are_quantised_as_the_package_does(kind: Kind, tmp_path: Path) -> None:
    """Of any size, however many are read at once, and wherever they lie in the file."""
    random = np.random.default_rng(kind)
    gains = 2.0 ** random.integers(-20, 14, (40, 6))
    values = (np.repeat(gains, BLOCK, axis=1) * random.standard_normal((40, 192))).astype(np.float32)
    raw, meant = stored_as(kind, values)
    for before in (0, 3):
        source = source_of(tmp_path / f"{before}.bin", kind, raw, before)
        whole = read_as_q8(source, 0, 40)
        assert assert_as_the_package(whole, meant) == 240
        for first, count in ((0, 1), (39, 1), (17, 16)):
            np.testing.assert_array_equal(read_as_q8(source, first, count), whole[first : first + count])


@whims
@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_hostile_rows_are_quantised_as_the_package_does(kind: Kind, tmp_path: Path) -> None:
    raw, meant = stored_as(kind, hostile())
    assert assert_as_the_package(read_as_q8(source_of(tmp_path / "a", kind, raw), 0, len(raw)), meant) >= 20


@whims
@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16], ids=lambda kind: kind.name)
def test_every_number_of_16_bits_is_quantised_as_the_package_does(kind: Kind, tmp_path: Path) -> None:
    raw, meant = every(kind)
    given = read_as_q8(source_of(tmp_path / "a", kind, raw), 0, 64)
    assert assert_as_the_package(given, meant) > 1900


@whims
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_a_block_that_is_not_finite_has_such_a_scale_and_no_integers(odd: float, tmp_path: Path) -> None:
    values = np.ones((1, 64), np.float32)
    values[0, 5] = odd
    given = read_as_q8(source_of(tmp_path / "a", Kind.F32, values.view(np.uint8)), 0, 1)[0]
    assert not np.isfinite(given[:2].view(np.float16)[0])
    assert not given[2:BLOCK_BYTES].any()
    assert given[BLOCK_BYTES + 2 :].tolist() == [127] * BLOCK


def written(folder: Path, model: HeadedModel) -> Path:
    path = folder / f"{model.head.name}-{model.quantised}.gguf"
    model.write(path)
    return path


def test_it_costs_little_of_an_answer(tmp_path: Path) -> None:
    """Mean KL divergence of 150 distributions from those of the stored head."""
    path = written(tmp_path, HeadedModel())
    tokens = np.random.default_rng(1).integers(0, 75, 150).tolist()
    found = []
    for head in HEADS:
        with Engine(path, threads=1, slots=1, head=head) as engine:
            found.append(engine.step([Chunk(0, 0, tokens, "all")]).logits.astype(np.float64))
    p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in found)
    assert 0 < (np.exp(p) * (p - q)).sum(-1).mean() < 1e-3


def logits(path: Path, **how: Any) -> bytes:
    tokens = [(index * index * 7 + index // 9) % 75 for index in range(40)]
    with Engine(path, slots=1, context=64, **how) as engine:
        prompt = engine.step([Chunk(0, 0, tokens[:37], "all")]).logits.tobytes()
        rest = [engine.step([Chunk(0, 37 + at, [token], "last")]) for at, token in enumerate(tokens[37:])]
        return prompt + b"".join(result.logits.tobytes() for result in rest)


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_logits_are_those_of_a_file_with_a_q8_0_head(kind: Kind, isa: str, tmp_path: Path) -> None:
    stored, file = (written(tmp_path, HeadedModel(head=kind, quantised=each)) for each in (False, True))
    expected = logits(file, isa=isa, threads=1)
    for threads in (1, 2):
        assert logits(stored, isa=isa, threads=threads, head="q8_0") == expected
    assert logits(stored, isa=isa, threads=1) != expected


def test_a_directory_s_head_is_quantised_and_nothing_else(tmp_path: Path) -> None:
    model = TinyCheckpoint("pack-BF16")
    folder = model.write(tmp_path, padding=1)
    with Engine(folder, threads=1, slots=1) as engine:
        stored, first = engine.weight_bytes, engine.step([Chunk(0, 0, [1, 2, 3], "all")]).logits.copy()
        assert engine.head == "stored"
    with Engine(folder, threads=1, slots=1, head="q8_0") as engine:
        assert engine.head == "q8_0"
        second = engine.step([Chunk(0, 0, [1, 2, 3], "all")]).logits
        # Of 72 rows, and 8 more to the last panel.
        assert stored - engine.weight_bytes == 80 * 128 * 4 - 80 * 128 // 32 * 34
    assert 0 < np.abs(first - second).max() < 0.05 * np.abs(first).max()


def test_a_plan_is_that_of_a_file_with_a_q8_0_head(tmp_path: Path) -> None:
    stored, file = (written(tmp_path, HeadedModel(quantised=each)) for each in (False, True))
    steps = [Step(1, 1, 0, 1), Step(3, 1, 100, 3), Step(1, 64, 0, 1)]
    expected = plan(file, Holding(slots=3), 1 << 30, steps)
    assert plan(stored, Holding(slots=3, head="q8_0"), 1 << 30, steps) == expected
    memory, (one, *_) = plan(stored, Holding(slots=3), 1 << 30, steps)
    assert memory.weight_bytes > expected[0].weight_bytes
    saved = one.products.bytes - expected[1][0].products.bytes
    assert saved == 96 * (96 * 2 - 96 // 32 * 34)  # 75 rows, in groups of 32


REFUSED = {
    "quantised": (HeadedModel(quantised=True), "this model's is Q8_0, quantised already"),
    "four bits": (TinyModel(tied=False), "this model's is Q4_1, quantised already"),
    "tied": (TinyModel(), "its embedding table is its head too"),
    "narrow": (NarrowModel(), "rows of 72 values are no multiple of its block of 32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_it_has_no_sense_it_is_refused_and_says_why(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, why = REFUSED[name]
    path = tmp_path / "model.gguf"
    model.write(path)
    with pytest.raises(EngineArgumentError, match=f"an output head as 'q8_0': .*{why}"):
        Engine(path, threads=1, slots=1, head="q8_0")
    assert main([str(path), "--plan", "--head", "q8_0"]) == 2
    said = capsys.readouterr()
    assert why in said.err
    assert said.out == ""


def test_a_form_that_there_is_not_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, HeadedModel())
    with pytest.raises(EngineArgumentError, match="an output head as 'q4_0', not 'stored' or 'q8_0'"):
        Engine(path, threads=1, slots=1, head=cast("Any", "q4_0"))
    assert main([str(path), "--plan", "--head", "q4_0"]) == 2
    assert "invalid choice: 'q4_0'" in capsys.readouterr().err
    with pytest.raises(RefusedError, match="quantised already"):
        read_as_q8(w4_source(tmp_path), 0, 1)


def w4_source(folder: Path) -> abi.TensorSource:
    path = folder / "w4.bin"
    path.write_bytes(b"\0" * 66)
    return abi.TensorSource(
        name=b"output.weight",
        path=str(path).encode(),
        size=64,
        scale_path=str(path).encode(),
        scale_offset=64,
        scale_size=2,
        columns=128,
        rows=1,
        type=1001,
        storage=1,
        factor=1.0,
    )


def test_the_command_plans_a_head_and_says_which(tmp_path: Path) -> None:
    path = written(tmp_path, HeadedModel())

    def planned(*words: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as told:
            assert main([str(path), "--plan", *words]) == 0
        return told.getvalue()

    assert "head as q8_0: memory" in planned("--head", "q8_0")
    assert "head as stored: memory" in planned()
    found = json.loads(planned("--head", "q8_0", "--json"))
    assert found["head"] == "q8_0"
    assert found["memory"]["weight_bytes"] < json.loads(planned("--json"))["memory"]["weight_bytes"]


def test_another_head_is_another_server_and_a_guesser_keeps_its_own(tmp_path: Path) -> None:
    folder = TinyCheckpoint("pack-F16", vocabulary=tiny_tokenizer.SIZE).write(tmp_path / "model")
    tiny_tokenizer.write(folder)
    tied = TinyCheckpoint("F32", tied=True, vocabulary=tiny_tokenizer.SIZE).write(tmp_path / "tied")
    tiny_tokenizer.write(tied)
    said = []
    for head, guesser in ((HEADS[0], None), (HEADS[1], None), (HEADS[1], Speculation(str(tied)))):
        chosen = ModelOptions(
            *(folder, "m"),
            threads=1,
            slots=1,
            context=64,
            kept_slots=0,
            head=head,
            speculation=guesser,
        )
        loaded = load(chosen, Metrics())
        try:
            said.append(loaded.served.identity)
            assert loaded.engine.head == head
            assert loaded.guesser.engine is None or loaded.guesser.engine.head == "stored"
            assert loaded.served.fingerprint == said[-1]["system_fingerprint"]
        finally:
            loaded.close()
    settings = [cast("dict[str, object]", each["settings"]) for each in said]
    assert [each["head"] for each in settings] == ["stored", "q8_0", "q8_0"]
    stored, other, guessing = (str(each["system_fingerprint"]) for each in said)
    assert other not in (stored, "")
    assert other == guessing
    assert {**settings[0], "head": "q8_0"} == settings[1]
