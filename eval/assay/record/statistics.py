"""Intervals for mean rewards: over questions, and exact where there is nothing to resample.

Rows that ask the same question are one cluster, since a repeated question brings no new evidence; so every
method here resamples or counts *questions*.

- **Bootstrap** (scipy's, percentile method, 10,000 resamples, pairs of a question's sum and its rows). Seeded
  from the questions, so that the same rows have the same bounds wherever they were asked, and nobody chooses
  them. Beyond `RESAMPLED` questions its table of draws fits no memory. Drawing n questions with replacement
  is drawing how often each *distinct pair* comes up, which is multinomial: that is drawn instead, exactly,
  where there are at most `DISTINCT` pairs. Where there are more, the clustered interval stands in its place:
  with so many questions the two are the same.
- **Clustered** (normal, standard error of a ratio clustered by question, CR1: Cameron, Gelbach and Miller
  2008; Miller 2024, "Adding Error Bars to Evals").
- **Wilson** (scipy's), only where every row is right or wrong and every question stands alone.
- **Clopper and Pearson**, where all rewards are the same 0 or 1: a bootstrap would claim certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from assay.record.ledger import Ledger, Questions

if TYPE_CHECKING:
    import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
RESAMPLED = 8192
DISTINCT = 1024
# Elements of one table of draws: bounds memory; scipy draws the same whatever the size.
DRAWN = 1 << 20
SPREAD = 1e-9

Method = Literal["bootstrap-percentile", "clustered-normal", "clopper-pearson", "none"]


class Bounds(BaseModel):
    """A 95 % interval, to six decimals."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    low: float
    high: float


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a mean; `low` and `high` are None where it cannot be given (`method` "none")."""

    low: float | None
    high: float | None
    method: Method
    clusters: int


@dataclass(frozen=True)
class Spread:
    """The rewards of rows, as far as an interval has to know them.

    Attributes:
        lowest: Of a row.
        highest: Of a row.
        total: Their sum.
        rows: How many.
        right: Rows with the reward 1.
        binary: Every reward is 0 or 1.
    """

    lowest: float
    highest: float
    total: float
    rows: int
    right: int
    binary: bool


def interval(questions: Questions, spread: Spread) -> Interval:
    """The 95 % interval of the mean reward.

    Args:
        questions: Each question's sum of rewards and rows.
        spread: Of the rows' rewards.

    Returns:
        Bounds to six decimals. Fewer than two questions whose rewards are not all 0 or all 1, or no spread
        between questions, give method "none".
    """
    count = questions.count
    if not count:
        return Interval(None, None, "none", 0)
    # Loaded here because it takes a second, and a refused command should not wait for it.
    from scipy import stats

    if spread.lowest == spread.highest and spread.lowest in (0.0, 1.0):
        exact = stats.binomtest(int(spread.lowest) * count, count).proportion_ci(CONFIDENCE, method="exact")
        return Interval(round(float(exact.low), 6), round(float(exact.high), 6), "clopper-pearson", count)
    if count < 2 or not _differ(questions):
        return Interval(None, None, "none", count)
    if count <= RESAMPLED:
        bounds = _bootstrap(questions)
    elif (pairs := _pairs(questions)) is not None:
        bounds = _multinomial(pairs, questions)
    else:
        found = clustered(questions, spread)
        return Interval(found.low, found.high, "clustered-normal", count) if found else _none(count)
    return Interval(bounds.low, bounds.high, "bootstrap-percentile", count)


def clustered(questions: Questions, spread: Spread) -> Bounds | None:
    """The normal interval with a standard error clustered by question; None where nothing differs.

    It is not cut to the range of the rewards: where it leaves it, there are too few questions for it.
    """
    error = standard_error(questions, spread)
    if error is None:
        return None
    from scipy import stats

    return _rounded(*stats.norm.interval(CONFIDENCE, spread.total / spread.rows, error))


def standard_error(questions: Questions, spread: Spread) -> float | None:
    """The standard error of the mean, clustered by question (CR1); None where no two questions differ."""
    if questions.count < 2 or not _differ(questions):
        return None
    import numpy as np

    mean = spread.total / spread.rows
    squares = math.fsum(float(np.square(sums - mean * sizes).sum()) for sums, sizes in questions.chunks())
    return math.sqrt(questions.count / (questions.count - 1) * squares) / spread.rows


def wilson(questions: Questions, spread: Spread) -> Bounds | None:
    """Wilson's interval; None unless every reward is 0 or 1 and every question has one row."""
    if not spread.binary or not spread.rows or questions.count != spread.rows:
        return None
    from scipy import stats

    found = stats.binomtest(spread.right, spread.rows).proportion_ci(CONFIDENCE, method="wilson")
    return _rounded(found.low, found.high)


def mean_interval(rewards: Sequence[float], clusters: Sequence[str]) -> Interval:
    """The interval of rows that are at hand: see `interval`.

    Args:
        rewards: One reward a row, finite.
        clusters: The question each row asks, same length; equal questions are one cluster.

    Raises:
        ValueError: the lengths differ, or a reward is not finite.
    """
    if len(rewards) != len(clusters):
        raise ValueError(f"{len(rewards)} rewards for {len(clusters)} clusters")
    if not all(map(math.isfinite, rewards)):
        raise ValueError("a reward is not finite")
    with Ledger() as ledger:
        for reward, name in zip(rewards, clusters, strict=True):
            ledger.question(0, name, reward, 1)
        spread = Spread(
            lowest=min(rewards, default=0.0),
            highest=max(rewards, default=0.0),
            total=math.fsum(rewards),
            rows=len(rewards),
            right=sum(reward == 1.0 for reward in rewards),
            binary=all(reward in (0.0, 1.0) for reward in rewards),
        )
        return interval(ledger.questions(), spread)


def _differ(questions: Questions) -> bool:
    """Whether questions differ in their means: sums of equal rewards do in their last bits, which is none."""
    lowest, highest = math.inf, -math.inf
    for sums, sizes in questions.chunks():
        means = sums / sizes
        lowest, highest = min(lowest, float(means.min())), max(highest, float(means.max()))
    return highest - lowest >= SPREAD


def _bootstrap(questions: Questions) -> Bounds:
    import numpy as np
    from scipy import stats

    ((sums, sizes),) = questions.chunks()

    def mean(total: np.ndarray, size: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(total.sum(axis=axis) / size.sum(axis=axis))

    result = stats.bootstrap(
        (sums, sizes),
        mean,
        n_resamples=RESAMPLES,
        batch=max(1, DRAWN // len(sums)),
        paired=True,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(questions.seed()),
    )
    return _rounded(result.confidence_interval.low, result.confidence_interval.high)


def _pairs(questions: Questions) -> dict[tuple[float, float], int] | None:
    """How many questions have each distinct pair of sum and rows; None where these are too many."""
    import numpy as np

    found: dict[tuple[float, float], int] = {}
    for sums, sizes in questions.chunks():
        # Sums of the same rewards in another order differ in their last bits.
        both = np.stack([np.round(sums, 12), sizes], axis=1)
        rows, counts = np.unique(both, axis=0, return_counts=True)
        for (total, size), count in zip(rows.tolist(), counts.tolist(), strict=True):
            found[(total, size)] = found.get((total, size), 0) + count
        if len(found) > DISTINCT:
            return None
    return found


def _multinomial(pairs: dict[tuple[float, float], int], questions: Questions) -> Bounds:
    """The bootstrap's percentiles from draws of how often each distinct pair comes up."""
    import numpy as np

    sums, sizes = np.asarray(sorted(pairs)).T
    shares = np.asarray([pairs[pair] for pair in sorted(pairs)]) / questions.count
    random = np.random.default_rng(questions.seed())
    step = max(1, DRAWN // len(shares))
    means = [
        (drawn @ sums) / (drawn @ sizes)
        for begin in range(0, RESAMPLES, step)
        for drawn in [random.multinomial(questions.count, shares, size=min(step, RESAMPLES - begin))]
    ]
    tail = 100 * (1 - CONFIDENCE) / 2
    return _rounded(*np.percentile(np.concatenate(means), [tail, 100 - tail]))


def _none(count: int) -> Interval:
    return Interval(None, None, "none", count)


def _rounded(low: Any, high: Any) -> Bounds:
    return Bounds(low=round(float(low), 6), high=round(float(high), 6))
