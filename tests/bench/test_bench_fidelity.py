"""The divergence of two sides over the same ids and a rest bucket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fidelity import fidelity, kl_divergence, log_softmax, top_ids

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


def test_a_summary_counts_agreement_and_its_error() -> None:
    p = distributions(1, positions=4)
    ids = top_ids(p, 5)
    chosen = np.take_along_axis(p, ids, -1)
    top = ids[:, 0].copy()
    other = top.copy()
    other[3] += 1
    result = fidelity(chosen, chosen, top, other)
    assert (result.positions, result.kl_mean, result.same_top) == (4, 0.0, 0.75)
    assert result.same_top_se == pytest.approx(np.sqrt(0.75 * 0.25 / 3))
