"""Intervals: they hold the mean, depend on no order, and repeating a question brings no certainty."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.record.statistics import CONFIDENCE, RESAMPLES, mean_interval

ROUNDING = 1e-6
REWARD = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1))
ROWS = st.lists(st.tuples(REWARD, st.sampled_from("abcdefgh")), min_size=1, max_size=24)
FEW = settings(max_examples=40)


def split(rows: list[tuple[float, str]]) -> tuple[list[float], list[str]]:
    return [reward for reward, _ in rows], [cluster for _, cluster in rows]


@FEW
@given(ROWS, st.integers(0, 2**64 - 1))
def test_an_interval_holds_the_mean_and_lies_between_the_rewards(
    rows: list[tuple[float, str]], seed: int
) -> None:
    rewards, clusters = split(rows)
    interval = mean_interval(rewards, clusters, seed)
    assert interval.clusters == len(set(clusters))
    if interval.method == "none":
        assert interval.low is None
        assert interval.high is None
        return
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low - ROUNDING <= math.fsum(rewards) / len(rewards) <= interval.high + ROUNDING
    if interval.method == "bootstrap-percentile":
        assert min(rewards) - ROUNDING <= interval.low
        assert interval.high <= max(rewards) + ROUNDING


@FEW
@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_the_order_of_rows_does_not_matter(rows: list[tuple[float, str]], random: Random, seed: int) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    first, second = mean_interval(*split(rows), seed), mean_interval(*split(shuffled), seed)
    assert (first.method, first.clusters) == (second.method, second.clusters)
    assert (first.low, first.high) == pytest.approx((second.low, second.high), abs=ROUNDING)


@FEW
@given(ROWS, st.integers(2, 5), st.integers(0, 2**32))
def test_asking_every_question_more_often_with_the_same_outcome_does_not_narrow(
    rows: list[tuple[float, str]], times: int, seed: int
) -> None:
    once, often = mean_interval(*split(rows), seed), mean_interval(*split(rows * times), seed)
    assert (often.method, often.clusters) == (once.method, once.clusters)
    assert (often.low, often.high) == pytest.approx((once.low, once.high), abs=2 * ROUNDING)


def test_the_last_bits_of_equal_rewards_are_no_spread() -> None:
    reward = 0.7669744671895036
    for count in range(2, 12):
        interval = mean_interval([reward] * count, ["a"] * (count - 1) + ["b"], 0)
        assert (interval.method, interval.clusters) == ("none", 2)


def test_a_repeated_question_widens_against_the_same_number_of_distinct_ones() -> None:
    rewards = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    distinct = mean_interval(rewards, list("abcdefgh"), 1)
    repeated = mean_interval(rewards, list("aaabbccd"), 1)
    assert distinct.low is not None
    assert distinct.high is not None
    assert repeated.low is not None
    assert repeated.high is not None
    assert repeated.high - repeated.low > distinct.high - distinct.low


def test_the_bounds_are_scipys_own() -> None:
    rewards = np.asarray([0.0, 1.0, 0.25, 1.0, 0.5, 0.0, 0.0, 1.0, 0.75])
    ours = mean_interval(rewards.tolist(), [f"{index:02}" for index in range(len(rewards))], 7)
    theirs = stats.bootstrap(
        (rewards,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(7),
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=ROUNDING)


@pytest.mark.parametrize(("reward", "count"), [(0.0, 1), (0.0, 8), (1.0, 1), (1.0, 8), (1.0, 100)])
def test_where_all_rewards_are_equal_the_bound_is_the_exact_binomial_one(reward: float, count: int) -> None:
    interval = mean_interval([reward] * count, [str(index) for index in range(count)], 0)
    assert interval.method == "clopper-pearson"
    tail = (1 - CONFIDENCE) / 2
    one_sided = 1 - tail ** (1 / count)
    expected = (0.0, one_sided) if reward == 0.0 else (1 - one_sided, 1.0)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=ROUNDING)


def test_duplicates_do_not_narrow_the_exact_bound() -> None:
    assert mean_interval([1.0] * 50, ["same"] * 50, 0) == mean_interval([1.0], ["same"], 0)


@pytest.mark.parametrize(
    ("rewards", "clusters"),
    [
        ([], []),
        ([0.5], ["a"]),
        ([0.2, 0.8], ["a", "a"]),
        ([0.5, 0.5], ["a", "b"]),
        ([0.0, 1.0] * 2, ["a", "a", "b", "b"]),
    ],
)
def test_where_nothing_can_be_said_there_is_no_bound(rewards: list[float], clusters: list[str]) -> None:
    interval = mean_interval(rewards, clusters, 0)
    assert (interval.low, interval.high, interval.method) == (None, None, "none")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        mean_interval([0.0, bad], ["a", "b"], 0)
    with pytest.raises(ValueError, match="1 rewards for 2 clusters"):
        mean_interval([0.0], ["a", "b"], 0)


def test_another_seed_moves_the_bounds_little_and_the_same_seed_not_at_all() -> None:
    rewards = [index % 3 / 2 for index in range(40)]
    clusters = [str(index) for index in range(40)]
    first = mean_interval(rewards, clusters, 1)
    assert mean_interval(rewards, clusters, 1) == first
    second = mean_interval(rewards, clusters, 2)
    assert (first.low, first.high) == pytest.approx((second.low, second.high), abs=0.02)
