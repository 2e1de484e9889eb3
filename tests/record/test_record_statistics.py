"""Intervals: they hold the mean, depend on no order, and repeating a question brings no certainty."""

from __future__ import annotations

import hashlib
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.record import statistics
from assay.record.ledger import Ledger
from assay.record.statistics import CONFIDENCE, RESAMPLES, Bounds, Interval, Spread, mean_interval

ROUNDING = 1e-6
REWARD = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1))
ROWS = st.lists(st.tuples(REWARD, st.sampled_from("abcdefgh")), min_size=1, max_size=24)
FEW = settings(max_examples=40)


def split(rows: list[tuple[float, str]]) -> tuple[list[float], list[str]]:
    return [reward for reward, _ in rows], [cluster for _, cluster in rows]


@FEW
@given(ROWS)
def test_an_interval_holds_the_mean_and_lies_between_the_rewards(rows: list[tuple[float, str]]) -> None:
    rewards, clusters = split(rows)
    interval = mean_interval(rewards, clusters)
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
@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[tuple[float, str]], random: Random) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    first, second = mean_interval(*split(rows)), mean_interval(*split(shuffled))
    assert (first.method, first.clusters) == (second.method, second.clusters)
    assert (first.low, first.high) == pytest.approx((second.low, second.high), abs=ROUNDING)


@FEW
@given(ROWS, st.integers(2, 5))
def test_asking_every_question_more_often_with_the_same_outcome_does_not_narrow(
    rows: list[tuple[float, str]], times: int
) -> None:
    once, often = mean_interval(*split(rows)), mean_interval(*split(rows * times))
    assert (often.method, often.clusters) == (once.method, once.clusters)
    assert (often.low, often.high) == pytest.approx((once.low, once.high), abs=2 * ROUNDING)


def test_the_last_bits_of_equal_rewards_are_no_spread() -> None:
    reward = 0.7669744671895036
    for count in range(2, 12):
        interval = mean_interval([reward] * count, ["a"] * (count - 1) + ["b"])
        assert (interval.method, interval.clusters) == ("none", 2)


def test_a_repeated_question_widens_against_the_same_number_of_distinct_ones() -> None:
    rewards = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    distinct = mean_interval(rewards, list("abcdefgh"))
    repeated = mean_interval(rewards, list("aaabbccd"))
    assert distinct.low is not None
    assert distinct.high is not None
    assert repeated.low is not None
    assert repeated.high is not None
    assert repeated.high - repeated.low > distinct.high - distinct.low


def test_the_bounds_are_scipys_own() -> None:
    rewards = np.asarray([0.0, 1.0, 0.25, 1.0, 0.5, 0.0, 0.0, 1.0, 0.75])
    names = [f"{index:02}" for index in range(len(rewards))]
    ours = mean_interval(rewards.tolist(), names)
    theirs = stats.bootstrap(
        (rewards,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed_of(names)),
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=ROUNDING)


@pytest.mark.parametrize(("reward", "count"), [(0.0, 1), (0.0, 8), (1.0, 1), (1.0, 8), (1.0, 100)])
def test_where_all_rewards_are_equal_the_bound_is_the_exact_binomial_one(reward: float, count: int) -> None:
    interval = mean_interval([reward] * count, [str(index) for index in range(count)])
    assert interval.method == "clopper-pearson"
    tail = (1 - CONFIDENCE) / 2
    one_sided = 1 - tail ** (1 / count)
    expected = (0.0, one_sided) if reward == 0.0 else (1 - one_sided, 1.0)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=ROUNDING)


def test_duplicates_do_not_narrow_the_exact_bound() -> None:
    assert mean_interval([1.0] * 50, ["same"] * 50) == mean_interval([1.0], ["same"])


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
    interval = mean_interval(rewards, clusters)
    assert (interval.low, interval.high, interval.method) == (None, None, "none")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        mean_interval([0.0, bad], ["a", "b"])
    with pytest.raises(ValueError, match="1 rewards for 2 clusters"):
        mean_interval([0.0], ["a", "b"])


def test_the_bounds_follow_from_the_rows_and_other_questions_move_them_little() -> None:
    rewards = [index * 0.37 % 1 for index in range(40)]
    first = mean_interval(rewards, [f"{index:02}" for index in range(40)])
    assert mean_interval(rewards, [f"{index:02}" for index in range(40)]) == first
    second = mean_interval(rewards, [f"{index:02} again" for index in range(40)])
    assert (first.low, first.high) != (second.low, second.high)
    assert (first.low, first.high) == pytest.approx((second.low, second.high), abs=0.02)


def bounds(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


def test_beyond_its_table_the_bootstrap_is_drawn_by_how_often_each_pair_comes_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(5)
    rewards = random.choice([0.0, 1.0], 900, p=[0.3, 0.7]).tolist()
    clusters = [str(number // 3) if number < 300 else str(number) for number in range(900)]
    table = mean_interval(rewards, clusters)
    monkeypatch.setattr(statistics, "RESAMPLED", 100)
    pairs = mean_interval(rewards, clusters)
    assert (pairs.method, pairs.clusters) == ("bootstrap-percentile", 700)
    assert bounds(pairs) != bounds(table)
    assert bounds(pairs) == pytest.approx(bounds(table), abs=0.002)
    monkeypatch.setattr(statistics, "DRAWN", 64)
    assert bounds(mean_interval(rewards, clusters)) == bounds(pairs), "in however many tables it is drawn"
    monkeypatch.setattr(statistics, "DISTINCT", 2)
    normal = mean_interval(rewards, clusters)
    assert (normal.method, normal.clusters) == ("clustered-normal", 700)
    assert bounds(normal) == pytest.approx(bounds(table), abs=0.002)


def test_the_clustered_error_is_that_of_a_ratio_of_independent_questions() -> None:
    rewards = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.0]
    names = list("aabbbcdefg")
    mean = sum(rewards) / 10
    groups = {name: [r for r, n in zip(rewards, names, strict=True) if n == name] for name in names}
    residuals = [sum(group) - mean * len(group) for group in groups.values()]
    error = math.sqrt(7 / 6 * sum(value**2 for value in residuals)) / 10
    found = both(rewards, names)[0]
    assert found is not None
    assert (found.low, found.high) == pytest.approx(
        (mean - 1.959964 * error, mean + 1.959964 * error), abs=2e-6
    )
    plain = both(rewards, list("abcdefghij"))[0]
    expected = stats.norm.interval(CONFIDENCE, mean, stats.sem(rewards))
    assert plain is not None
    assert (plain.low, plain.high) == pytest.approx(expected, abs=2e-6)


def test_wilsons_interval_is_given_for_right_or_wrong_answers_to_questions_of_their_own() -> None:
    found = both([1.0] * 29 + [0.0], [str(number) for number in range(30)])[1]
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.833296, 0.994089), abs=2e-6)
    assert both([1.0, 0.0, 1.0], list("aab"))[1] is None
    assert both([1.0, 0.0, 0.5], list("abc"))[1] is None
    alone = both([0.0], ["a"])
    assert alone[0] is None
    assert alone[1] is not None


def both(rewards: list[float], names: list[str]) -> tuple[Bounds | None, Bounds | None]:
    """The clustered and Wilson's interval."""
    with Ledger() as ledger:
        for reward, name in zip(rewards, names, strict=True):
            ledger.question(0, name, reward, 1)
        spread = Spread(
            min(rewards),
            max(rewards),
            sum(rewards),
            len(rewards),
            rewards.count(1.0),
            set(rewards) <= {0.0, 1.0},
        )
        return statistics.clustered(ledger.questions(), spread), statistics.wilson(ledger.questions(), spread)


def seed_of(names: list[str]) -> int:
    return int.from_bytes(hashlib.sha256("".join(f"{name}\n" for name in names).encode()).digest()[:8], "big")
