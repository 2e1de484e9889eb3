"""Paired statistics: exact where they say so, symmetric, and right about what could have been shown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.compare import paired
from assay.compare.comparison import POWER, Estimate
from assay.compare.evidence import Differences
from assay.compare.paired import detectable, effect, estimate, fewest, holm, power, ratio, signs
from assay.record import statistics
from assay.record.ledger import Ledger
from assay.record.statistics import CONFIDENCE, RESAMPLES, Spread

LEVEL = 1 - CONFIDENCE
ROUNDING = 1e-6
FEW = settings(max_examples=25)
BINARY = st.lists(st.sampled_from([-1.0, 0.0, 0.0, 1.0]), min_size=1, max_size=30)


@contextmanager
def differences(values: list[float], names: list[str] | None = None) -> Iterator[Differences]:
    with Ledger() as ledger:
        found = Differences(ledger, 0)
        for number, value in enumerate(values):
            found.add(f"{number:06}" if names is None else names[number], value)
        yield found


def estimated(values: list[float], names: list[str] | None = None, span: float = 1.0) -> Estimate:
    with differences(values, names) as found:
        single = names is None and set(values) <= {-1.0, 0.0, 1.0}
        return estimate(found.questions, found.spread, span, single)


def detected(values: list[float], level: float = LEVEL) -> float | None:
    with differences(values) as found:
        single = set(values) <= {-1.0, 0.0, 1.0}
        differing = sum(value != 0 for value in values)
        return detectable(found.questions, found.spread, differing, 1.0, single, level)


def coin(gains: int, losses: int) -> float:
    """How often a fair coin is as lopsided, by counting every outcome."""
    total = gains + losses
    weights = [math.comb(total, heads) for heads in range(total + 1)]
    return sum(weight for weight in weights if weight <= weights[gains]) / 2**total


@FEW
@given(BINARY)
def test_mcnemar_is_the_count_of_every_outcome(values: list[float]) -> None:
    gains, losses = values.count(1.0), values.count(-1.0)
    with differences(values) as found:
        table = signs(found.questions)
    assert (table.gains, table.losses, table.ties) == (gains, losses, values.count(0.0))
    assert table.p == pytest.approx(coin(gains, losses), rel=1e-9)
    if len(values) > 1:
        assert estimated(values).p == table.p
        assert estimated(values).test == "mcnemar-exact"


@FEW
@given(st.lists(st.integers(-8, 8).map(lambda value: value / 8), min_size=2, max_size=10))
def test_the_sign_flip_test_is_the_count_of_every_choice_of_signs(values: list[float]) -> None:
    names = [str(number) for number in range(len(values))]
    found = estimated(values, names)
    seen = abs(sum(values))
    ways = [
        abs(sum(sign * value for sign, value in zip(chosen, values, strict=True)))
        for chosen in itertools.product((1, -1), repeat=len(values))
    ]
    assert found.test == "sign-flip"
    assert found.p == pytest.approx(sum(way >= seen - 1e-9 for way in ways) / len(ways), rel=1e-9)


@FEW
@given(BINARY)
def test_right_or_wrong_the_sign_flip_test_is_mcnemars(values: list[float]) -> None:
    if sum(value != 0 for value in values) > 12 or len(values) < 2:
        values = [*values[:12], 0.0]
    flipped = estimated(values, [str(number) for number in range(len(values))])
    assert flipped.p == pytest.approx(estimated(values).p, rel=1e-9)


@FEW
@given(st.lists(st.tuples(st.floats(-1, 1), st.sampled_from("abcdef")), min_size=2, max_size=24))
def test_turned_round_everything_changes_its_sign_and_nothing_else(rows: list[tuple[float, str]]) -> None:
    values, names = [value for value, _ in rows], [name for _, name in rows]
    there, back = estimated(values, names), estimated([-value for value in values], names)
    assert back.difference == pytest.approx(-there.difference, abs=ROUNDING)
    assert (back.method, back.test) == (there.method, there.test)
    assert back.p == pytest.approx(there.p, abs=1e-9)
    if there.bounds is None:
        assert back.bounds is None
        return
    assert back.bounds is not None
    assert (back.bounds.low, back.bounds.high) == pytest.approx(
        (-there.bounds.high, -there.bounds.low), abs=2 * ROUNDING
    )


@FEW
@given(BINARY, st.integers(2, 4))
def test_the_same_rollout_many_times_is_no_more_evidence(values: list[float], times: int) -> None:
    names = [f"{number:06}" for number in range(len(values))]
    once, often = estimated(values, names), estimated(values * times, names * times)
    assert often.p == pytest.approx(once.p, rel=1e-9)
    assert (often.bounds is None) == (once.bounds is None)
    if once.bounds is not None and often.bounds is not None:
        assert (often.bounds.low, often.bounds.high) == pytest.approx(
            (once.bounds.low, once.bounds.high), abs=2 * ROUNDING
        )


def test_the_interval_is_scipys_bootstrap_of_the_differences() -> None:
    values = [1.0, 0.0, -1.0, 1.0, 1.0, 0.0, 0.0, -1.0, 1.0, 0.0]
    found = estimated(values)
    with differences(values) as kept:
        seed = kept.questions.seed()
    theirs = stats.bootstrap(
        (np.asarray(values),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    assert found.method == "bootstrap-percentile"
    assert found.bounds is not None
    assert (found.bounds.low, found.bounds.high) == pytest.approx((theirs.low, theirs.high), abs=ROUNDING)


@pytest.mark.parametrize("count", [1, 5, 300])
def test_where_nothing_differs_the_bound_is_that_of_no_flip_in_so_many(count: int) -> None:
    found = estimated([0.0] * count)
    most = 1 - 0.05 ** (1 / count)
    assert found.bounds is not None
    assert (found.bounds.low, found.bounds.high) == pytest.approx((-most, most), abs=ROUNDING)
    assert (found.difference, found.method, found.p) == (0.0, "exact", 1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_where_every_question_flips_the_bound_is_exact(sign: float) -> None:
    found = estimated([sign] * 20)
    least = 2 * 0.025 ** (1 / 20) - 1
    assert found.bounds is not None
    assert sorted((abs(found.bounds.low), abs(found.bounds.high))) == pytest.approx(
        [least, 1.0], abs=ROUNDING
    )
    assert math.copysign(1.0, found.bounds.low) == sign
    assert found.p == pytest.approx(2 / 2**20)


def test_a_constant_shift_of_graded_rewards_has_no_interval_and_so_no_verdict() -> None:
    found = estimated([0.25] * 10)
    assert (found.bounds, found.method) == (None, "none")
    assert found.difference == 0.25


def test_beyond_its_table_the_test_is_the_clustered_normal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(7)
    values = random.choice([-0.5, 0.0, 0.25, 1.0], 400).tolist()
    names = [f"{number:06}" for number in range(400)]
    exact = estimated(values, names)
    monkeypatch.setattr(paired, "RESAMPLED", 100)
    monkeypatch.setattr(statistics, "RESAMPLED", 100)
    normal = estimated(values, names)
    assert (exact.test, normal.test) == ("sign-flip", "normal")
    assert normal.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=0.05)
    assert exact.bounds is not None
    assert normal.bounds is not None
    assert (normal.bounds.low, normal.bounds.high) == pytest.approx(
        (exact.bounds.low, exact.bounds.high), abs=0.004
    )


@FEW
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holms_adjustment_is_that_of_its_definition(ps: list[float]) -> None:
    adjusted = holm(ps)
    for p, found in zip(ps, adjusted, strict=True):
        # The largest, over all smaller p values, of p times how many are not smaller.
        steps = [min(1.0, other * sum(later >= other for later in ps)) for other in ps if other <= p]
        assert found == pytest.approx(max(steps))
        assert p <= found <= 1


def test_holms_adjustment_is_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.02]) == [0.02]


def test_so_many_questions_are_needed_to_show_anything() -> None:
    assert fewest(0.05) == 6
    assert 2 * 0.5 ** fewest(0.005) <= 0.005 < 2 * 0.5 ** (fewest(0.005) - 1)
    assert detected([1.0, 0.0, 0.0, -1.0, 0.0]) is None
    assert detected([0.0] * 5) is None
    assert detected([0.0] * 6) is not None


@pytest.mark.parametrize(("questions", "differing", "difference"), [(60, 0.3, 0.2), (25, 0.5, 0.4)])
def test_the_power_is_the_sum_over_every_table(questions: int, differing: float, difference: float) -> None:
    gain, loss = (differing + difference) / 2, (differing - difference) / 2
    total = 0.0
    for gains in range(questions + 1):
        for losses in range(questions + 1 - gains):
            if coin(gains, losses) <= LEVEL:
                total += stats.multinomial.pmf(
                    [gains, losses, questions - gains - losses], questions, [gain, loss, 1 - gain - loss]
                )
    assert power(questions, differing, difference, LEVEL) == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("flips", [0, 4, 30])
def test_the_detectable_effect_is_found_four_times_in_five(flips: int) -> None:
    count = 200
    values = [1.0] * (flips // 2) + [-1.0] * (flips - flips // 2) + [0.0] * (count - flips)
    mde = detected(values)
    assert mde is not None
    differing = max(flips / count, mde)
    random = np.random.default_rng(11)
    chances = [(differing + mde) / 2, (differing - mde) / 2, 1 - differing]
    tables = random.multinomial(count, chances, size=4000)
    outcomes, times = np.unique(tables[:, :2], axis=0, return_counts=True)
    found = sum(
        int(often)
        for (gains, losses), often in zip(outcomes.tolist(), times, strict=True)
        if stats.binomtest(gains, gains + losses or 1).pvalue <= LEVEL and gains + losses
    )
    assert found / 4000 == pytest.approx(POWER, abs=0.03)


def test_the_detectable_effect_of_graded_rewards_is_found_four_times_in_five() -> None:
    random = np.random.default_rng(13)
    values = random.normal(0, 0.2, 80)
    values -= values.mean()
    mde = detected(values.tolist())
    assert mde is not None
    assert mde == pytest.approx((1.959964 + 0.841621) * values.std(ddof=1) / math.sqrt(80), rel=1e-4)
    drawn = random.normal(mde, values.std(ddof=1), (4000, 80))
    found = stats.ttest_1samp(drawn, 0, axis=1).pvalue <= LEVEL
    assert found.mean() == pytest.approx(POWER, abs=0.03)


def test_one_graded_flip_in_many_is_no_certainty() -> None:
    mde = detected([-1 / 3] + [0.0] * 79)
    assert mde is not None
    # Six of eighty must differ, by a third each; with power 0.8 that takes a share of 7.9 in eighty.
    assert 6 / 80 / 3 < mde == pytest.approx(stats.beta.ppf(0.8, 6, 75) / 3, abs=1e-6)


def test_more_questions_and_a_laxer_level_show_smaller_effects() -> None:
    values = [1.0, -1.0] + [0.0] * 48
    fewer, more, strict = detected(values), detected(values * 4), detected(values, LEVEL / 10)
    assert fewer is not None
    assert more is not None
    assert strict is not None
    assert more < fewer < strict


def test_beyond_its_table_the_detectable_effect_hardly_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ([1.0, -1.0] + [0.0] * 18) * 100
    exact = detected(values)
    monkeypatch.setattr(paired, "RESAMPLED", 100)
    normal = detected(values)
    assert exact is not None
    assert normal == pytest.approx(exact, rel=0.05)
    nearly = detected([1.0] + [0.0] * 1999)
    assert nearly is not None
    assert nearly > fewest(LEVEL) / 2000, "one flip in two thousand is no certainty"


def test_the_effect_is_cohens_d_of_the_pairs() -> None:
    values = [1.0, 0.0, 0.0, -1.0, 1.0, 1.0, 0.0, 0.5]
    with differences(values) as found:
        seen = effect(found.questions, found.spread)
    assert seen == pytest.approx(np.mean(values) / np.std(values, ddof=1), abs=ROUNDING)
    with differences([0.5] * 4) as found:
        assert effect(found.questions, found.spread) is None


def test_the_interval_of_a_ratio_is_that_of_sums() -> None:
    random = np.random.default_rng(3)
    a = random.integers(20, 200, 120)
    b = (a * random.uniform(0.7, 1.1, 120)).round()
    with Ledger() as ledger:
        for number, (first, second) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
            ledger.question(0, f"{number:03}", second, first)
        bounds = ratio(ledger.questions(0), Spread(0.0, math.inf, float(b.sum()), int(a.sum()), 0, False))
    theirs = stats.bootstrap(
        (b, a),
        lambda up, down, axis=-1: up.sum(axis=axis) / down.sum(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert bounds is not None
    assert (bounds.low, bounds.high) == pytest.approx((theirs.low, theirs.high), abs=0.005)
    assert bounds.low < b.sum() / a.sum() < bounds.high


@pytest.mark.long
@pytest.mark.parametrize("rollouts", [1, 4])
@pytest.mark.parametrize("true", [0.0, 0.1])
def test_the_interval_holds_the_true_difference_as_often_as_it_says(rollouts: int, true: float) -> None:
    random = np.random.default_rng(17)
    held = rejected = 0
    trials = 250
    for _ in range(trials):
        # Questions of their own difficulty; repeated rollouts of a question are no new questions.
        right = random.beta(2, 2, 150) * 0.8 + 0.05
        a = random.random((rollouts, 150)) < right
        b = random.random((rollouts, 150)) < right + true
        values = (b.astype(float) - a.astype(float)).ravel().tolist()
        names = [f"{number:06}" for number in range(150)] * rollouts
        found = estimated(values, names)
        assert found.bounds is not None
        held += found.bounds.low <= true <= found.bounds.high
        rejected += found.p <= LEVEL
    assert 0.915 <= held / trials <= 0.985
    if true == 0.0:
        assert rejected / trials <= 0.08
