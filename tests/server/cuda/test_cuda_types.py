"""Every type of weights on the device: what embed and both forms of qlinear make of stored rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.server.cuda.conftest import ISA
from tests.server.engine.operations import DECODE, PREFILL, Floats, Operations
from tests.server.engine.rowforms import NVFP4
from tests.server.engine.test_engine_types import (
    FACTOR,
    FLOATS,
    KINDS,
    SCALES,
    block_of,
    name_of,
    products,
    random_rows,
)

pytestmark = pytest.mark.slow

INTEGERS = [kind for kind in KINDS if kind not in FLOATS]


@pytest.fixture
def operations(emulated: Path) -> Operations:
    return Operations(ISA, emulated)


def activations(count: int, columns: int, seed: int) -> Floats:
    x = np.random.default_rng(seed).standard_normal((count, columns)).astype(np.float32)
    x[:, ::41] *= 9
    return x


def shapes(kind: int) -> Iterator[tuple[int, int]]:
    """Rows and columns: one group; a rest of rows; more groups than segments, the last of those short."""
    columns = max(32, block_of(kind)[0])
    yield 1, columns
    yield 41, 3 * columns
    yield 130, 9 * columns


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_embed_is_bit_for_bit_what_a_row_means(operations: Operations, kind: int) -> None:
    rows = random_rows(kind, 37, 512)
    expected = products(kind, rows, FACTOR)
    for token in (0, 7, 31, 32, 36):
        np.testing.assert_array_equal(operations.embed(kind, rows, 512, token, FACTOR), expected[token])


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_qlinear_is_the_exact_product_and_the_same_bytes_in_both_forms_and_any_company(
    operations: Operations, kind: int
) -> None:
    for rows, columns in shapes(kind):
        raw = random_rows(kind, rows, columns)
        weights = products(kind, raw, FACTOR)
        x = activations(11, columns, seed=rows)
        for refinements in (0, 1) if kind in INTEGERS else (0,):
            seen = x.astype(np.float64)
            if kind in INTEGERS:
                seen = np.stack([operations.quantise(row, refinements).values() for row in x])
            bound = 4e-6 * (np.abs(seen) @ np.abs(weights).T).max()
            prefill = operations.qlinear(PREFILL, kind, raw, x, refinements, factor=FACTOR)
            np.testing.assert_allclose(prefill, seen @ weights.T, rtol=0, atol=bound)
            for first, count in ((0, 1), (1, 3), (3, 8), (10, 1)):
                company = x[first : first + count]
                decode = operations.qlinear(DECODE, kind, raw, company, refinements, factor=FACTOR)
                assert decode.tobytes() == prefill[first : first + count].tobytes()


@pytest.mark.parametrize("kind", INTEGERS, ids=name_of)
def test_the_largest_integers_and_activations_stay_exact(operations: Operations, kind: int) -> None:
    """Dots at the end of their range: every integer at an end of its own, every activation too."""
    columns = 2 * block_of(kind)[0]
    raw = random_rows(kind, 4, columns)
    ends = raw.copy().reshape(4, -1, block_of(kind)[1])
    for row, byte in enumerate((0x00, 0xFF, 0x77, 0x88)):
        ends[row] = byte
    scaled = raw.reshape(ends.shape)
    for at in SCALES[kind]:
        ends[..., at : at + 2] = scaled[..., at : at + 2]
    raw = ends.reshape(4, -1)
    weights = products(kind, raw)
    x = np.ones((2, columns), np.float32) * np.array([[3.0], [-5.0]], np.float32)
    expected = x.astype(np.float64) @ weights.T
    bound = 4e-6 * (np.abs(x) @ np.abs(weights).T).max()
    for form in (DECODE, PREFILL):
        answer = operations.qlinear(form, kind, raw, x, 1)
        np.testing.assert_allclose(answer, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if block_of(kind)[0] > 32], ids=name_of)
def test_a_row_that_ends_within_a_group_is_refused(operations: Operations, kind: int) -> None:
    with pytest.raises(AssertionError):
        operations.qlinear(DECODE, kind, np.zeros((3, 4096), np.uint8), np.ones((1, 96), np.float32))


@pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")
@pytest.mark.parametrize("kind", INTEGERS, ids=name_of)
def test_embed_is_bit_for_bit_what_any_bytes_mean(operations: Operations, kind: int) -> None:
    """Scales that are tiny, infinite or NaN too; every E4M3 scale."""
    values, size = block_of(kind)
    rows = np.random.default_rng(kind).integers(0, 256, (1, 4096 // values * size), dtype=np.uint8)
    if kind == NVFP4:
        blocks = rows.reshape(128, size)
        blocks[:, 0], blocks[:, 1] = np.arange(128), np.arange(128, 256)
    np.testing.assert_array_equal(operations.embed(kind, rows, 4096, 0), products(kind, rows)[0])
