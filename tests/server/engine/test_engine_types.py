"""Every type of weights: what its bytes mean, bit for bit, and what every backend computes with them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from tests.server.engine import rowforms
from tests.server.engine.operations import Floats, dequantised
from tests.server.engine.rowforms import NVFP4, W4_BF16, W4_F16

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


def assert_same_bits(given: Floats, expected: Floats) -> None:
    """Holds where each number has the same bits, the sign of zero among them, and NaN is where NaN is."""
    missing = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(given), missing)
    known = ~missing.reshape(-1)
    np.testing.assert_array_equal(
        given.view(np.uint32).reshape(-1)[known], expected.view(np.uint32).reshape(-1)[known]
    )


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
@pytest.mark.parametrize("factor", [1.0, 3 * 448.0, 2.0**-126])
def test_dequantise_is_bit_exact_on_any_bytes(kind: int, factor: float) -> None:
    values, size = block_of(kind)
    blocks = 4096 // values
    rows = np.random.default_rng(kind).integers(0, 256, (64, blocks * size), dtype=np.uint8)
    for row, expected in zip(rows, meaning(kind, rows, factor), strict=True):
        assert_same_bits(dequantised(kind, row, blocks * values, factor), expected)


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
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
