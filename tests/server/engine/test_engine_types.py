"""Every type of weights: what its bytes mean, bit for bit, and what every backend computes with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from server.engine import Chunk, Engine
from tests.server.engine import rowforms
from tests.server.engine.kquants import quantize
from tests.server.engine.operations import DECODE, PREFILL, Floats, Operations, dequantised
from tests.server.engine.rowforms import NVFP4, W4_BF16, W4_F16
from tests.server.engine.test_engine_model import divergence
from tests.server.engine.tiny import WideModel

Kind = GGMLQuantizationType
Bytes = npt.NDArray[np.uint8]

FILE_KINDS = [
    *(Kind.F32, Kind.F16, Kind.BF16),
    *(Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K),
]
KINDS: list[int] = [*FILE_KINDS, W4_F16, W4_BF16, NVFP4]
# Where a block has halves, or the 16 bits of another scale.
SCALES: dict[int, tuple[int, ...]] = {
    Kind.Q4_0: (0,),
    Kind.Q4_1: (0, 2),
    Kind.Q5_0: (0,),
    Kind.Q5_1: (0, 2),
    Kind.Q8_0: (0,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
    W4_F16: (0,),
    W4_BF16: (0,),
    NVFP4: (0,),
}
FLOATS = (Kind.F32, Kind.F16, Kind.BF16)
FACTOR = 3.0  # of a tensor, where its type has one
# How large a number the scales of a type multiply.
SPREAD: dict[int, int] = {Kind.Q4_K: 40, Kind.Q5_K: 40, Kind.Q6_K: 100, Kind.Q8_0: 10}


def name_of(kind: int) -> str:
    return {W4_F16: "W4_F16", W4_BF16: "W4_BF16", NVFP4: "NVFP4"}.get(kind) or Kind(kind).name


def block_of(kind: int) -> tuple[int, int]:
    """Values and bytes of a block."""
    return rowforms.BYTES_OF[kind] if kind in rowforms.BYTES_OF else GGML_QUANT_SIZES[Kind(kind)]


def meaning(kind: int, rows: Bytes, factor: float = 1.0) -> Floats:
    """What rows [count, bytes] are to the packages that define their types."""
    if kind in rowforms.BYTES_OF:
        return rowforms.dequantised(kind, rows, factor)
    typed = rows.view({0: np.float32, 1: np.float16}.get(kind, np.uint8))
    return np.asarray(dequantize(typed, Kind(kind)), np.float32)


def random_rows(kind: int, rows: int, columns: int, seed: int = 0) -> Bytes:
    """Rows of any integers under scales that make values of about one."""
    values, size = block_of(kind)
    random = np.random.default_rng(seed)
    if kind in FLOATS:
        weights = random.standard_normal((rows, columns)).astype(np.float32)
        return np.ascontiguousarray(quantize(weights, Kind(kind))).view(np.uint8).reshape(rows, -1)
    blocks = random.integers(0, 256, (rows, columns // values, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scale = random.uniform(0.03, 0.1, blocks.shape[:2]) * random.choice([-1, 1], blocks.shape[:2])
        if kind == NVFP4:
            blocks[..., at : at + 2] = random.integers(0x28, 0x40, (*blocks.shape[:2], 2))
        elif kind == W4_BF16:
            blocks[..., at : at + 2] = scale_bytes(rowforms.to_bfloat(scale.astype(np.float32)))
        else:
            blocks[..., at : at + 2] = scale_bytes(scale / SPREAD.get(kind, 1))
    return blocks.reshape(rows, -1)


def scale_bytes(scales: npt.NDArray[np.floating] | npt.NDArray[np.uint16]) -> Bytes:
    halves = scales if scales.dtype == np.uint16 else scales.astype(np.float16)
    return np.ascontiguousarray(halves).view(np.uint8).reshape(*halves.shape, 2)


def products(kind: int, rows: Bytes, factor: float = 1.0) -> npt.NDArray[np.float64]:
    """The weights that kernels compute with: what the rows mean, of row forms before the last rounding."""
    if kind in rowforms.BYTES_OF:
        return rowforms.dequantised(kind, rows, factor, rounded=False).astype(np.float64)
    return meaning(kind, rows).astype(np.float64)


def assert_same_bits(given: Floats, expected: Floats) -> None:
    """Holds where each number has the same bits, the sign of zero among them, and NaN is where NaN is."""
    missing = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(given), missing)
    known = ~missing.reshape(-1)
    np.testing.assert_array_equal(
        given.view(np.uint32).reshape(-1)[known], expected.view(np.uint32).reshape(-1)[known]
    )


@pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_dequantise_is_bit_exact_on_any_bytes(kind: int) -> None:
    values, size = block_of(kind)
    blocks = 4096 // values
    rows = np.random.default_rng(kind).integers(0, 256, (64, blocks * size), dtype=np.uint8)
    for factor in (1.0, 3 * 448.0, 2.0**-126) if kind == NVFP4 else (1.0,):
        given = dequantised(kind, rows.reshape(-1), 64 * blocks * values, factor)
        assert_same_bits(given, meaning(kind, rows, factor).reshape(-1))


@pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")
@pytest.mark.parametrize("kind", SCALES, ids=name_of)
def test_dequantise_is_bit_exact_for_every_scale(kind: int) -> None:
    values, size = block_of(kind)
    blocks = np.random.default_rng(kind).integers(0, 256, (65536, size), dtype=np.uint8)
    for number, at in enumerate(SCALES[kind]):
        every = np.roll(np.arange(65536, dtype=np.uint16), 257 * number)
        blocks[:, at : at + 2] = every.view(np.uint8).reshape(-1, 2)
    row = blocks.reshape(1, -1)
    assert_same_bits(dequantised(kind, row[0], 65536 * values), meaning(kind, row)[0])


def test_dequantise_of_every_16_bit_float_is_bit_exact() -> None:
    every = np.arange(65536, dtype=np.uint16).view(np.uint8)
    for kind in (Kind.F16, Kind.BF16):
        assert_same_bits(dequantised(kind, every, 65536), meaning(kind, every[None])[0])


@pytest.mark.parametrize("kind", [Kind.Q4_K, Kind.Q5_K, Kind.Q6_K], ids=name_of)
def test_k_quants_are_written_as_the_gguf_package_reads_them(kind: Kind) -> None:
    values = np.random.default_rng(1).standard_normal((7, 768)).astype(np.float32)
    off = np.abs(np.asarray(dequantize(quantize(values, kind), kind)) - values).max()
    assert off < {Kind.Q4_K: 0.25, Kind.Q5_K: 0.13, Kind.Q6_K: 0.07}[kind]


@pytest.fixture
def operations(isa: str) -> Operations:
    return Operations(isa)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_embed_reads_any_row_of_a_table(operations: Operations, kind: int) -> None:
    raw = random_rows(kind, 37, 512)
    expected = products(kind, raw, FACTOR)
    for token in (0, 7, 8, 15, 16, 36):
        given = operations.embed(kind, raw, 512, token, FACTOR)
        np.testing.assert_allclose(given, expected[token], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (48, 512), (41, 768)])
def test_qlinear_equals_the_product_with_what_the_rows_mean(
    operations: Operations, kind: int, rows: int, columns: int
) -> None:
    raw = random_rows(kind, rows, columns)
    weights = products(kind, raw, FACTOR)
    for count in (1, 2, 3, 4, 5, 8, 13):
        x = np.random.default_rng(count).standard_normal((count, columns)).astype(np.float32)
        for refinements in {0, 1, columns // 32 // 2, columns // 32}:
            activations = x.astype(np.float64)
            if kind not in FLOATS:
                activations = np.stack([operations.quantise(row, refinements).values() for row in x])
            expected = activations @ weights.T
            bound = 4e-6 * (np.abs(activations) @ np.abs(weights).T).max()
            for form in (DECODE, PREFILL):
                answer = operations.qlinear(form, kind, raw, x, refinements, factor=FACTOR)
                np.testing.assert_allclose(answer, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_qlinear_gives_a_row_the_same_bytes_in_any_company(operations: Operations, kind: int) -> None:
    raw = random_rows(kind, 40, 512)
    x = np.random.default_rng(3).standard_normal((17, 512)).astype(np.float32)
    for refinements in (0, 2, 16):
        alone = np.concatenate([operations.qlinear(DECODE, kind, raw, row[None], refinements) for row in x])
        for form in (DECODE, PREFILL):
            for count in range(1, 18):
                together = operations.qlinear(form, kind, raw, x[:count], refinements)
                assert together.tobytes() == alone[:count].tobytes()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FLOATS], ids=name_of)
def test_qlinear_survives_the_widest_integers(operations: Operations, kind: int) -> None:
    """Sums of products in 16 bits are at their limit where every nibble and every activation is widest."""
    size = block_of(kind)[1]
    blocks = random_rows(kind, 16, 512).reshape(16, -1, size)
    kept = blocks.copy()
    parts = {Kind.Q4_K: (0, 16), Kind.Q5_K: (0, 16), Kind.Q6_K: (192, 210)}  # where K-quants have all scales
    scales = [slice(*parts[kind])] if kind in parts else [slice(at, at + 2) for at in SCALES[kind]]
    mixed = np.where(np.arange(512) % 3 < 2, 1, -1)
    x = np.stack([np.ones(512), -np.ones(512), mixed]).astype(np.float32)
    for fill in (0, 255, 128, 127):
        blocks[...] = fill
        for scale in scales:
            blocks[..., scale] = kept[..., scale]
        raw = np.ascontiguousarray(blocks.reshape(16, -1))
        weights = products(kind, raw)
        for refinements in (0, 16):
            activations = np.stack([operations.quantise(row, refinements).values() for row in x])
            bound = 4e-6 * (np.abs(activations) @ np.abs(weights).T).max()
            for form in (DECODE, PREFILL):
                answer = operations.qlinear(form, kind, raw, x, refinements)
                np.testing.assert_allclose(answer, activations @ weights.T, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", FILE_KINDS, ids=name_of)
def test_a_model_of_every_type_is_computed_to_its_rounding(kind: Kind, isa: str, tmp_path: Path) -> None:
    """Keys and values are rounded, and before integer weights activations too."""
    model = WideModel(kind=kind, embedding_kind=kind, tied=False)
    assert divergence(model, tmp_path, isa) < (1e-6 if kind in FLOATS else 3e-3)


def test_types_may_be_mixed_in_one_model_and_the_table_be_the_head(isa: str, tmp_path: Path) -> None:
    for kind, embedding in ((Kind.Q4_K, Kind.Q6_K), (Kind.Q5_K, Kind.BF16), (Kind.Q6_K, Kind.Q4_K)):
        assert divergence(WideModel(kind=kind, embedding_kind=embedding), tmp_path, isa) < 3e-3


@pytest.mark.parametrize("kind", FILE_KINDS, ids=name_of)
def test_a_prompt_cut_anywhere_gives_the_same_bytes(kind: Kind, isa: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    WideModel(kind=kind, embedding_kind=kind).write(path)
    tokens = np.random.default_rng(2).integers(0, 75, 40).tolist()
    answers = []
    for threads, cuts in ((1, [40]), (2, [40]), (2, [1, 2, 9, 27, 28, 40])):
        with Engine(path, threads=threads, isa=isa) as engine:
            begin, parts = 0, []
            for end in cuts:
                parts.append(engine.step([Chunk(0, begin, tokens[begin:end], "all")]).logits.copy())
                begin = end
            answers.append(np.concatenate(parts).tobytes())
    assert len(set(answers)) == 1
