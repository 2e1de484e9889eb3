"""The divergence of two sides over the same ids and a rest bucket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.divergence import (
    Side,
    fidelity,
    jensen_shannon,
    kl_divergence,
    kl_ratio,
    log_softmax,
    mean_of,
    measured,
    top_ids,
)

seeds = st.integers(0, 2**32 - 1)


def distributions(seed: int, positions: int = 5, vocabulary: int = 40) -> np.ndarray:
    return log_softmax(np.random.default_rng(seed).standard_normal((positions, vocabulary)) * 3)


def test_a_worked_example() -> None:
    p, q = np.log([[0.5, 0.2]]), np.log([[0.4, 0.4]])
    expected = 0.5 * np.log(0.5 / 0.4) + 0.2 * np.log(0.2 / 0.4) + 0.3 * np.log(0.3 / 0.2)
    np.testing.assert_allclose(kl_divergence(p, q), [expected], rtol=1e-12)


@given(seeds, st.integers(1, 40))
def test_identical_sides_have_none(seed: int, count: int) -> None:
    p = distributions(seed)
    chosen = np.take_along_axis(p, top_ids(p, count), -1)
    np.testing.assert_array_equal(kl_divergence(chosen, chosen), np.zeros(5))


@given(seeds, seeds, st.integers(1, 39))
def test_the_rest_bucket_never_adds_divergence(first: int, second: int, count: int) -> None:
    p, q = distributions(first), distributions(second)
    ids = top_ids(p, count)
    bound = kl_divergence(np.take_along_axis(p, ids, -1), np.take_along_axis(q, ids, -1))
    full = (np.exp(p) * (p - q)).sum(-1)
    assert (bound >= -1e-9).all()
    assert (bound <= full + 1e-5).all()


def test_top_ids_take_the_lowest_of_equals() -> None:
    assert top_ids(np.log([[0.1, 0.3, 0.3, 0.3]]), 3).tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 0.1])
def test_what_was_not_measured_is_refused(bad: float) -> None:
    p = np.log([[0.5, 0.2]])
    q = p.copy()
    q[0, 1] = bad
    with pytest.raises(ValueError, match="candidate"):
        kl_divergence(p, q)
    with pytest.raises(ValueError, match="reference"):
        kl_divergence(q, p)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes"):
        kl_divergence(np.zeros((2, 3)), np.zeros((2, 4)))


def side(logits: np.ndarray, ids: np.ndarray, seed: int = 3) -> Side:
    following = np.random.default_rng(seed).integers(0, logits.shape[1], len(logits))
    return measured(logits, ids, following)


def test_identical_sides_agree_in_everything() -> None:
    p = distributions(1, positions=6)
    exact = side(p, top_ids(p, 10))
    result = fidelity(exact, exact, np.array([0, 0, 1, 1, 2, 2]))
    assert (result.kl.mean, result.kl_reverse.mean, result.same_top, result.top5) == (0, 0, 1, 1)
    assert result.jsd.mean == pytest.approx(0, abs=1e-12)
    assert (result.delta_p, result.perplexity_ratio, result.flip_margin) == (0, 1, None)
    assert (result.positions, result.documents) == (6, 3)
    assert set(result.kl_tail) == {"max", "99.9", "99", "95", "90", "50", "10", "5", "1", "0.1", "min"}


def test_a_summary_counts_agreement_and_its_error() -> None:
    p = distributions(1, positions=4)
    exact = side(p, top_ids(p, 5))
    other = Side(exact.chosen, exact.top[:, ::-1].copy(), exact.truth + np.log([1, 1, 1, 0.5]))
    swapped = Side(other.chosen, np.vstack([exact.top[:3], other.top[3:]]), other.truth)
    result = fidelity(exact, swapped, np.zeros(4, np.int64))
    assert (result.kl.mean, result.same_top, result.top5) == (0, 0.75, 1)
    assert result.same_top_se == pytest.approx(np.sqrt(0.75 * 0.25 / 3))
    assert result.flip_margin == pytest.approx(exact.chosen[3, 0] - exact.chosen[3, 1])
    assert result.perplexity_ratio == pytest.approx(2**0.25)
    assert result.delta_p == pytest.approx(-np.exp(exact.truth[3]) / 8)


def test_positions_of_one_document_do_not_count_as_many() -> None:
    values = np.array([1.0, 1.0, 3.0, 3.0])
    result = mean_of(values, np.array([0, 0, 1, 1]))
    assert result.mean == 2
    assert result.se == pytest.approx(np.sqrt((5 - 4) / 3))
    assert result.document_se == pytest.approx(np.sqrt(8 * 2 / 1) / 4)
    assert mean_of(values, np.zeros(4, np.int64)).document_se == np.inf


def test_jensen_shannon_is_symmetric_and_bounded() -> None:
    p, q = distributions(5), distributions(6)
    ids = top_ids(p, 20)
    a, b = np.take_along_axis(p, ids, -1), np.take_along_axis(q, ids, -1)
    np.testing.assert_allclose(jensen_shannon(a, b), jensen_shannon(b, a), rtol=1e-9)
    assert (jensen_shannon(a, b) <= np.log(2) + 1e-9).all()


def test_the_ratio_is_of_the_same_positions() -> None:
    rng = np.random.default_rng(8)
    theirs = rng.gamma(1.0, 0.002, 600)
    documents = np.repeat(np.arange(12), 50)
    ratio = kl_ratio(0.5 * theirs, theirs, documents, 1)
    assert ratio.ratio == pytest.approx(0.5)
    assert ratio.upper == pytest.approx(0.5, abs=1e-9)
    noisy = kl_ratio(theirs * rng.uniform(0.5, 1.5, 600), theirs, documents, 1)
    assert noisy.by_position[0] < noisy.ratio < noisy.by_position[1]
    assert noisy.upper == max(noisy.by_position[1], noisy.by_document[1])
    assert kl_ratio(2 * theirs, theirs, documents, 1).upper > 1.05


@given(seeds, st.integers(1, 40))
def test_top_ids_are_a_stable_sort(seed: int, count: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 6, (3, 40)).astype(np.float64)
    expected = np.argsort(-rows, axis=-1, kind="stable")[:, :count]
    np.testing.assert_array_equal(top_ids(rows, count), expected)
