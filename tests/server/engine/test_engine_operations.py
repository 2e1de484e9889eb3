"""Every operation of every backend against exact arithmetic in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from bench import reference
from tests.server.engine.operations import DECODE, F16, INT8, PREFILL, Q4, Operations, mixed

KINDS = [
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.Q4_0,
    GGMLQuantizationType.Q4_1,
    GGMLQuantizationType.Q8_0,
]


@pytest.fixture
def operations(isa: str) -> Operations:
    return Operations(isa)


def gaussian(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def stored(values: npt.NDArray[np.float32], kind: GGMLQuantizationType) -> npt.NDArray[np.uint8]:
    """The bytes of a GGUF tensor, one row each."""
    return np.ascontiguousarray(quantize(values, kind)).view(np.uint8).reshape(len(values), -1)


def exact(raw: npt.NDArray[np.uint8], kind: GGMLQuantizationType) -> npt.NDArray[np.float64]:
    typed = raw.view({0: np.float32, 1: np.float16}.get(int(kind), np.uint8))
    return np.asarray(dequantize(typed, kind), np.float64)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_embed_reads_any_row_of_the_packed_table(operations: Operations, kind: GGMLQuantizationType) -> None:
    raw = stored(gaussian(37, 96), kind)
    for token in (0, 7, 8, 15, 16, 36):
        np.testing.assert_allclose(
            operations.embed(kind, raw, 96, token), exact(raw, kind)[token], rtol=1e-6, atol=1e-6
        )


def test_rmsnorm(operations: Operations) -> None:
    x, weight = gaussian(576) * 30, gaussian(576, seed=1)
    expected = reference.rmsnorm(x.astype(np.float64), weight.astype(np.float64), 1e-5)
    np.testing.assert_allclose(operations.rmsnorm(x, weight, 1e-5), expected, rtol=1e-5, atol=1e-7)


def test_rmsnorm_of_zeros_is_zero(operations: Operations) -> None:
    assert not operations.rmsnorm(np.zeros(64, np.float32), gaussian(64), 1e-5).any()


def test_quantise_rounds_to_nearest_even_within_each_block(operations: Operations) -> None:
    x = gaussian(320) * np.repeat(np.float32(10.0) ** np.arange(-5, 5, dtype=np.float32), 32)
    x[64:96] = 0.0
    largest = np.abs(x.reshape(-1, 32)).max(1)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    expected = np.rint(x.reshape(-1, 32) * inverse[:, None])
    row = operations.quantise(x)
    np.testing.assert_array_equal(row.q, expected.astype(np.int8))
    np.testing.assert_array_equal(row.scale, largest / np.float32(127))
    np.testing.assert_array_equal(row.sum, expected.sum(1).astype(np.float32))


def test_quantise_refines_the_widest_blocks_the_first_among_equals(operations: Operations) -> None:
    x = gaussian(192)
    for block, width in enumerate([3.0, 9.0, 9.0, 1.0, 27.0, 9.0]):
        x[32 * block] = width * 10
    for count in range(7):
        row = operations.quantise(x, count)
        assert row.refined.tolist() == sorted([4, 1, 2, 5, 0, 3][:count])
        np.testing.assert_array_equal(row.scale[6:], row.scale[row.refined] / 256)
        totals = row.q[:6].sum(1, dtype=np.float32)
        totals[row.refined] += row.q[6:].sum(1) / np.float32(256)
        np.testing.assert_array_equal(row.sum, np.concatenate([totals, np.zeros(count, np.float32)]))
        error = np.abs(row.values() - x).reshape(-1, 32).max(1)
        for block in range(6):
            scale = row.scale[block]
            assert error[block] <= scale * (1.0 / 256 if block in row.refined else 0.5) * 1.001 + 1e-6
    assert (
        np.abs(operations.quantise(x, 6).values() - x).max()
        < np.abs(operations.quantise(x).values() - x).max() / 100
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (16, 32), (48, 576), (41, 96), (7, 1536), (17, 608)])
def test_qlinear_equals_the_dequantised_product(
    operations: Operations, kind: GGMLQuantizationType, rows: int, columns: int
) -> None:
    raw = stored(gaussian(rows, columns), kind)
    weights = exact(raw, kind)
    for count in (1, 2, 3, 4, 5, 8, 13, 17):
        x = gaussian(count, columns, seed=count)
        for refinements in {0, 1, columns // 32 // 2, columns // 32}:
            activations = x.astype(np.float64)
            if kind not in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
                activations = np.stack([operations.quantise(row, refinements).values() for row in x])
            expected = activations @ weights.T
            bound = 4e-6 * (np.abs(activations) @ np.abs(weights).T).max()
            for form in (DECODE, PREFILL):
                answer = operations.qlinear(form, kind, raw, x, refinements)
                np.testing.assert_allclose(answer, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("rows", "columns"), [(40, 192), (7, 608), (16, 1536)])
def test_qlinear_gives_a_row_the_same_bytes_in_any_company(
    operations: Operations, kind: GGMLQuantizationType, rows: int, columns: int
) -> None:
    raw, x = stored(gaussian(rows, columns), kind), gaussian(17, columns, seed=3)
    for refinements in (0, 2, columns // 32):
        alone = np.concatenate([operations.qlinear(DECODE, kind, raw, row[None], refinements) for row in x])
        for form in (DECODE, PREFILL):
            for count in range(1, 18):
                together = operations.qlinear(form, kind, raw, x[:count], refinements)
                assert together.tobytes() == alone[:count].tobytes()


@pytest.mark.parametrize(
    "kind", [GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0]
)
def test_qlinear_with_every_block_refined_is_nearly_exact(
    operations: Operations, kind: GGMLQuantizationType
) -> None:
    raw, x = stored(gaussian(33, 256), kind), gaussian(9, 256, seed=4)
    x[:, ::37] *= 40  # outliers, which make whole blocks coarse
    expected = x.astype(np.float64) @ exact(raw, kind).T
    for form in (DECODE, PREFILL):
        refined = np.abs(operations.qlinear(form, kind, raw, x, 8) - expected).max()
        assert refined < np.abs(operations.qlinear(form, kind, raw, x) - expected).max() / 100


def test_qlinear_adds_to_what_is_there(operations: Operations) -> None:
    kind = GGMLQuantizationType.Q4_1
    raw, x, before = stored(gaussian(21, 64), kind), gaussian(4, 64, seed=1), gaussian(4, 21, seed=2)
    for form in (DECODE, PREFILL):
        product = operations.qlinear(form, kind, raw, x)
        np.testing.assert_array_equal(
            operations.qlinear(form, kind, raw, x, added_to=before), before + product
        )


@pytest.mark.parametrize(
    "kind", [GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0]
)
def test_qlinear_takes_extreme_weights_without_overflow(
    operations: Operations, kind: GGMLQuantizationType
) -> None:
    raw = stored(gaussian(16, 64), kind)
    raw.reshape(16, 2, -1)[:, :, -(32 if kind == GGMLQuantizationType.Q8_0 else 16) :] = (
        0x80 if kind == GGMLQuantizationType.Q8_0 else 0xFF
    )
    x = np.full((3, 64), -5.0, np.float32)
    for form in (DECODE, PREFILL):
        np.testing.assert_allclose(operations.qlinear(form, kind, raw, x), x @ exact(raw, kind).T, rtol=1e-5)


@pytest.mark.parametrize(("head_dim", "rope_dim"), [(64, 64), (32, 20), (8, 2)])
def test_rope_rotates_interleaved_pairs(operations: Operations, head_dim: int, rope_dim: int) -> None:
    angle = 1234 * 10000.0 ** (-np.arange(0, rope_dim, 2) / rope_dim)
    head, cosine, sine = (
        gaussian(head_dim),
        np.cos(angle).astype(np.float32),
        np.sin(angle).astype(np.float32),
    )
    expected = reference.rotate(
        head.astype(np.float64)[None], cosine.astype(np.float64), sine.astype(np.float64)
    )[0]
    np.testing.assert_allclose(operations.rope(head, cosine, sine), expected, rtol=1e-5, atol=1e-6)


def test_kv_write_narrows_to_finite_halves_in_place(operations: Operations) -> None:
    keys, values = gaussian(213, 64) * 100, gaussian(213, 64, seed=1)
    keys[0, :6] = [1e9, -1e9, 65520.0, 1e-8, 6e-8, -3.05e-5]
    for read, given in zip(operations.kv_write(F16, keys, values), (keys, values), strict=True):
        np.testing.assert_array_equal(read, np.clip(given, -65504, 65504).astype(np.float16))


@pytest.mark.parametrize("head_dim", [8, 40, 64])
def test_kv_write_of_int8_scales_each_position(operations: Operations, head_dim: int) -> None:
    spread = np.float32(10.0) ** np.linspace(-6, 6, 213, dtype=np.float32)[:, None]
    keys, values = gaussian(213, head_dim) * spread, gaussian(213, head_dim, seed=1) * spread
    values[17] = 0
    for read, given in zip(operations.kv_write(INT8, keys, values), (keys, values), strict=True):
        largest = np.abs(given).max(1, keepdims=True)
        inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        np.testing.assert_array_equal(read, np.rint(given * inverse) * (largest / np.float32(127)))


@pytest.mark.parametrize("head_dim", [32, 64, 256])
def test_kv_write_of_q4_takes_fifteen_steps_from_least_to_most_of_a_group(
    operations: Operations, head_dim: int
) -> None:
    spread = np.float32(10.0) ** np.linspace(-3, 3, 213, dtype=np.float32)[:, None]
    keys, values = gaussian(213, head_dim) * spread, gaussian(213, head_dim, seed=1) * spread
    values[17], values[3, :2], keys[5] = 0, [1e9, -1e9], 0
    read_keys, read_values = operations.kv_write(Q4, keys, values)
    for read, given in ((mixed(read_keys), mixed(keys)), (read_values, values)):
        groups = np.clip(given, -32000, 32000).astype(np.float64).reshape(213, -1, 32)
        least, most = groups.min(2, keepdims=True), groups.max(2, keepdims=True)
        # Half a step, and what halves round the scale, the minimum and the value to.
        room = (
            (most - least) / 15 * (0.5 + 15 * 2**-11) + np.abs(groups).max(2, keepdims=True) * 2**-10 + 1e-7
        )
        assert (np.abs(read.reshape(groups.shape) - groups) <= room).all()
    assert not read_keys[5].any()
    assert not read_values[17].any()


def test_heads_that_are_no_whole_groups_are_no_operand(operations: Operations) -> None:
    with pytest.raises(AssertionError):
        operations.attention(DECODE, gaussian(1, 40), [2], gaussian(2, 40), gaussian(2, 40), Q4)


def test_keys_at_4_bits_are_mixed_so_that_one_large_dimension_costs_the_others_little(
    operations: Operations,
) -> None:
    given = gaussian(64, 128)
    given[:, 3] = 60
    keys, values = (np.abs(read - given)[:, 4:32].mean() for read in operations.kv_write(Q4, given, given))
    assert keys < values / 2, "values, which are not mixed, lose what lies beside it"


@pytest.mark.parametrize(
    ("kv", "head_dim"),
    [
        *((kv, head_dim) for kv in (F16, INT8) for head_dim in (8, 40, 64, 128)),
        *((Q4, head_dim) for head_dim in (32, 64, 128, 256)),
    ],
)
def test_attention_is_softmax_over_the_visible_positions(
    operations: Operations, kv: int, head_dim: int
) -> None:
    positions = 300
    keys, values = gaussian(positions, head_dim), gaussian(positions, head_dim, seed=1)
    q = gaussian(6, head_dim, seed=2) / np.float32(np.sqrt(head_dim))
    exact_keys, exact_values = (read.astype(np.float64) for read in operations.kv_write(kv, keys, values))
    for visible in ([1, 1, 2, 3, 7, 8], [127, 128, 129, 255, 256, 257], [300, 299, 298, 297, 9, 130]):
        hidden = np.arange(positions)[None] >= np.array(visible)[:, None]
        scaled = q.astype(np.float64) * np.sqrt(head_dim)
        expected = reference.attention(scaled[None], exact_keys[None], exact_values[None], hidden)[0]
        for form in (DECODE, PREFILL):
            for count in range(1, 7):
                answer = operations.attention(form, q[:count], visible[:count], keys, values, kv)
                np.testing.assert_allclose(answer, expected[:count], rtol=1e-4, atol=1e-5)


def test_values_at_4_bits_are_widened_to_the_very_halves(operations: Operations) -> None:
    """The one visible position weighs 1. Fine and coarse steps, beside minima of any size."""
    steps = np.linspace(0, 15, 32, dtype=np.float32) * np.float32(2.0) ** np.arange(-28, 12)[:, None]
    for least in (0, 1, -1, 0.3337, -0.9995, -1e-7, 2047, -16000):
        values = np.ascontiguousarray((least + steps).astype(np.float32))
        expected = operations.kv_write(Q4, values, values)[1]
        for form in (DECODE, PREFILL):
            for row in range(len(values)):
                one = values[row : row + 1]
                answer = operations.attention(form, one * 0, [1], one, one, Q4)
                np.testing.assert_array_equal(answer, expected[row : row + 1])


@pytest.mark.parametrize("head_dim", [32, 96, 256])
def test_scores_of_keys_at_4_bits_are_of_the_very_halves(operations: Operations, head_dim: int) -> None:
    """Halves near 2 lie 1e-3 apart: one not rounded, or rounded once, would be told from them."""
    dimensions = [0, 1, 17, 31, head_dim - 2, head_dim - 1]
    q = mixed(np.eye(head_dim, dtype=np.float32)[dimensions])
    values = np.ascontiguousarray(np.broadcast_to(np.float32([[0], [1]]), (2, head_dim)))
    for seed in range(20):
        keys = np.concatenate([np.zeros((1, head_dim), np.float32), gaussian(1, head_dim, seed=seed)])
        expected = mixed(operations.kv_write(Q4, keys, values)[0])[1, dimensions]
        for form in (DECODE, PREFILL):
            share = operations.attention(form, q, [2] * 6, keys, values, Q4)[:, 0].astype(np.float64)
            np.testing.assert_allclose(np.log(share / (1 - share)), expected, atol=1e-5)


@pytest.mark.parametrize("kv", [F16, INT8, Q4], ids=["f16", "int8", "q4"])
def test_attention_gives_a_query_the_same_bytes_in_any_company(operations: Operations, kv: int) -> None:
    keys, values, q = gaussian(400, 64), gaussian(400, 64, seed=1), gaussian(6, 64, seed=2)
    visible = [384, 385, 386, 120, 128, 257]
    alone = np.concatenate(
        [operations.attention(DECODE, q[i : i + 1], visible[i : i + 1], keys, values, kv) for i in range(6)]
    )
    for count in range(1, 7):
        together = operations.attention(PREFILL, q[:count], visible[:count], keys, values, kv)
        assert together.tobytes() == alone[:count].tobytes()


def test_attention_survives_scores_beyond_the_range_of_exp(operations: Operations) -> None:
    keys, values, q = gaussian(200, 64) * 100, gaussian(200, 64, seed=1), gaussian(2, 64, seed=2) * 100
    hidden = np.zeros((2, 200), bool)
    exact_keys, exact_values = (a.astype(np.float16).astype(np.float64)[None] for a in (keys, values))
    expected = reference.attention(q.astype(np.float64)[None] * 8, exact_keys, exact_values, hidden)[0]
    for form in (DECODE, PREFILL):
        np.testing.assert_allclose(
            operations.attention(form, q, [200, 200], keys, values), expected, atol=1e-3
        )


def test_silu_mul(operations: Operations) -> None:
    gate = np.concatenate([np.linspace(-200, 200, 96), np.linspace(-3, 3, 64)]).astype(np.float32)
    up = gaussian(160)
    expected = reference.silu(np.maximum(gate, -80).astype(np.float64)) * up
    np.testing.assert_allclose(operations.silu_mul(gate, up), expected, rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize("size", [1, 8, 31, 32, 100, 49152])
def test_argmax_takes_the_lowest_of_equal_values(operations: Operations, size: int) -> None:
    x = gaussian(size)
    for first in {0, size // 3, size - 1}:
        y = x.copy()
        y[first:] = np.minimum(y[first:], 9)
        y[first] = y[-1] = 10
        assert operations.argmax(y) == first
    assert operations.argmax(np.full(size, -np.inf, np.float32)) == 0


def test_argmax_never_answers_nan_while_a_number_is_there(operations: Operations) -> None:
    x = np.full(77, np.nan, np.float32)
    assert operations.argmax(x) == 0
    x[76] = -np.inf
    assert operations.argmax(x) == 76
    x[40] = 1
    assert operations.argmax(x) == 40
