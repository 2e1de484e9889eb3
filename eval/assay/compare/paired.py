"""Statistics of paired differences, over questions: interval, test, and what could have been shown at all.

A pair's difference d is B's reward minus A's. A question's rollouts are one cluster, so what is resampled,
flipped or counted is a question's sum of d over its rows.

- **Interval**: the pairs cluster bootstrap of `assay.record.statistics` over the differences, seeded from the
  questions. Where no question differs there is nothing to resample: none of n questions differs, so fewer
  than 1 - 0.05^(1/n) of all do, and the difference is within that; where every question differs all the way,
  the same is said of the opposite.
- **Test**: McNemar's exact one (scipy's `binomtest` over the questions that differ; McNemar 1947) where
  rewards are right or wrong and each question has one pair; else the sign-flip permutation test of the mean
  (scipy's `permutation_test`, exact where there are at most `FLIPS` ways, seeded from the questions); beyond
  `RESAMPLED` questions the normal one, with the error clustered by question.
- **Minimum detectable effect**: for McNemar's test by its exact power, at the share of differing questions
  that was seen, or at that of the effect where it is larger; else (z_{1-level/2} + z_power) times the
  standard error, or, where that is more, the difference at which the fewest questions with which an exact
  test can speak differ with power 0.8, as far as those that differ do: few or none is no certainty.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.compare.comparison import POWER, Bounded, Estimate, Signs, Test
from assay.record.ledger import Questions
from assay.record.statistics import (
    CONFIDENCE,
    DRAWN,
    RESAMPLED,
    SPREAD,
    Bounds,
    Spread,
    interval,
    standard_error,
)

if TYPE_CHECKING:
    import numpy as np

FLIPS = 9999
STEPS = 50


def signs(questions: Questions) -> Signs:
    """In how many questions B has more, A has more, or neither, with the exact p of a fair coin."""
    gains = losses = 0
    for sums, _ in questions.chunks():
        gains += int((sums > SPREAD).sum())
        losses += int((sums < -SPREAD).sum())
    return Signs(gains=gains, losses=losses, ties=questions.count - gains - losses, p=_fair(gains, losses))


def estimate(questions: Questions, spread: Spread, span: float, single: bool) -> Estimate:
    """The mean difference with its interval and its test.

    Args:
        questions: Each question's sum of differences and rows, at least one.
        spread: Of the rows' differences.
        span: Largest reward of either side minus the smallest: how far a difference can go.
        single: Every reward is 0 or 1 and every question has one pair, so that McNemar's test is exact.
    """
    mean = spread.total / spread.rows
    bounds, method = _bounds(questions, spread, mean, span)
    p, test = _test(questions, spread, single)
    return Estimate(difference=round(mean, 6), bounds=bounds, method=method, p=p, test=test)


def effect(questions: Questions, spread: Spread) -> float | None:
    """Cohen's d_z over questions: the mean difference over the deviation of the questions' own means."""
    error = standard_error(questions, spread)
    if not error:
        return None
    import numpy as np

    mean = spread.total / spread.rows
    squares = math.fsum(float(np.square(sums / sizes - mean).sum()) for sums, sizes in questions.chunks())
    return round(mean / math.sqrt(squares / (questions.count - 1)), 6)


def detectable(
    questions: Questions, spread: Spread, differing: int, span: float, single: bool, level: float
) -> float | None:
    """The smallest difference that is shown with power 0.8; None where so few questions can show none.

    Args:
        questions: Each question's sum of differences and rows.
        spread: Of the rows' differences.
        differing: Questions that differ.
        span: How far a difference can go.
        single: Whether the test is McNemar's.
        level: Of the two-sided test.
    """
    from scipy import stats

    count, needed = questions.count, fewest(level)
    if count < needed:
        return None
    if single and differing and count <= RESAMPLED:
        found = _exactly(count, differing, level)
        return None if found is None else round(found, 6)
    # Enough questions must differ, so often, even where all of them go one way: no test of signs shows less.
    share = float(stats.beta.ppf(POWER, needed, count - needed + 1))
    critical = float(stats.norm.ppf(1 - level / 2) + stats.norm.ppf(POWER))
    error = standard_error(questions, spread) or 0.0
    return round(max(critical * error, share * _step(questions, span)), 6)


def fewest(level: float) -> int:
    """How many questions must differ, all one way, for a two-sided exact test to say so."""
    return max(1, math.ceil(1 - math.log2(level)))


def power(questions: int, differing: float, difference: float, level: float) -> float:
    """The exact power of McNemar's two-sided test.

    Args:
        questions: How many.
        differing: Chance that a question differs, at least `difference`.
        difference: Chance of a gain minus that of a loss, above 0.
        level: Of the test.
    """
    import numpy as np
    from scipy import stats

    counts = np.arange(questions + 1)
    weights = stats.binom.pmf(counts, questions, differing)
    kept = weights > 0
    counts, weights = counts[kept], weights[kept]
    # The most losses (or gains) of so many differing questions with which the test still finds a difference.
    most = np.asarray(stats.binom.ppf(level / 2, counts, 0.5))
    most -= stats.binom.cdf(most, counts, 0.5) > level / 2
    gain = (1 + difference / differing) / 2
    found = stats.binom.cdf(most, counts, 1 - gain) + stats.binom.cdf(most, counts, gain)
    return float(weights @ found)


def holm(ps: list[float]) -> list[float]:
    """The p values adjusted for how many they are (Holm 1979), in their order."""
    order = sorted(range(len(ps)), key=ps.__getitem__)
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, ps[index] * (len(ps) - rank)))
        adjusted[index] = highest
    return adjusted


def ratio(questions: Questions, spread: Spread) -> Bounds | None:
    """The 95 % interval of a ratio of sums: `questions` has each one's upper and lower sum."""
    found = interval(questions, spread)
    return None if found.low is None or found.high is None else Bounds(low=found.low, high=found.high)


def _step(questions: Questions, span: float) -> float:
    """How far a question that differs goes, in the mean; the whole span where none does."""
    total, differing = 0.0, 0
    for sums, sizes in questions.chunks():
        far = abs(sums / sizes)
        total += float(far[far > SPREAD].sum())
        differing += int((far > SPREAD).sum())
    return total / differing if differing else span


def _bounds(questions: Questions, spread: Spread, mean: float, span: float) -> tuple[Bounds | None, Bounded]:
    count = questions.count
    alike = all(
        bool((abs(sums - mean * sizes) <= SPREAD * sizes).all()) for sums, sizes in questions.chunks()
    )
    if not alike:
        found = interval(questions, spread)
        if found.low is None or found.high is None or found.method == "clopper-pearson":
            return None, "none"
        return Bounds(low=found.low, high=found.high), (
            "bootstrap-percentile" if found.method == "bootstrap-percentile" else "clustered-normal"
        )
    if abs(mean) <= SPREAD:
        most = round(span * (1 - (1 - CONFIDENCE) ** (1 / count)), 6)
        return Bounds(low=-most, high=most), "exact"
    if abs(abs(mean) - span) <= SPREAD:
        # At least so many of all questions go that way, so at most the rest goes the other.
        least = round(span * (2 * ((1 - CONFIDENCE) / 2) ** (1 / count) - 1), 6)
        low, high = (least, span) if mean > 0 else (-span, -least)
        return Bounds(low=low, high=high), "exact"
    return None, "none"


def _test(questions: Questions, spread: Spread, single: bool) -> tuple[float, Test]:
    if questions.count < 2:
        return 1.0, "none"
    if single:
        return signs(questions).p, "mcnemar-exact"
    if questions.count > RESAMPLED:
        return _normal(questions, spread), "normal"
    return _flipped(questions), "sign-flip"


def _fair(gains: int, losses: int) -> float:
    from scipy import stats

    return float(stats.binomtest(gains, gains + losses).pvalue) if gains + losses else 1.0


def _normal(questions: Questions, spread: Spread) -> float:
    from scipy import stats

    error = standard_error(questions, spread)
    if not error:
        return 1.0 if abs(spread.total) <= SPREAD else 0.0
    return float(2 * stats.norm.sf(abs(spread.total / spread.rows / error)))


def _flipped(questions: Questions) -> float:
    """Two-sided p of the mean under every choice of signs, or under `FLIPS` of them drawn."""
    import numpy as np
    from scipy import stats

    ((sums, _),) = questions.chunks()
    differing = sums[abs(sums) > SPREAD]
    if len(differing) < 2:
        return 1.0

    def total(values: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(values.sum(axis=axis))

    result = stats.permutation_test(
        (differing,),
        total,
        permutation_type="samples",
        n_resamples=FLIPS,
        batch=max(1, DRAWN // len(differing)),
        vectorized=True,
        rng=np.random.default_rng(questions.seed()),
    )
    return float(result.pvalue)


def _exactly(questions: int, differing: int, level: float) -> float | None:
    """The difference at which McNemar's exact test has its power, by bisection; None where 1 has not."""

    def enough(difference: float) -> bool:
        return power(questions, max(differing / questions, difference), difference, level) >= POWER

    if not enough(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
