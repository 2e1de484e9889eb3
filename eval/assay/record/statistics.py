"""Intervals for mean rewards: a bootstrap over tasks, and exact bounds where there is nothing to resample.

Rewards are fractions, so a binomial interval does not fit them. The bootstrap is scipy's (percentile method,
10,000 resamples) over *clusters*: rows that ask the same question are one cluster, since a repeated question
brings no new evidence. It is seeded from the run's plan, so an auditor computes the same bounds. Where all
rewards are the same 0 or 1 a bootstrap would claim certainty: there the bound is the exact binomial one
(Clopper and Pearson 1934) over clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000
SPREAD = 1e-9

Method = Literal["bootstrap-percentile", "clopper-pearson", "none"]


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a mean; `low` and `high` are None where it cannot be given (`method` "none")."""

    low: float | None
    high: float | None
    method: Method
    clusters: int


def mean_interval(rewards: Sequence[float], clusters: Sequence[str], seed: int) -> Interval:
    """The 95 % interval of the mean reward.

    Args:
        rewards: One reward a row, finite.
        clusters: The question each row asks, same length; equal questions are one cluster.
        seed: Of the bootstrap's generator.

    Returns:
        Bounds to six decimals. Fewer than two clusters that are not all 0 or all 1 give method "none".

    Raises:
        ValueError: the lengths differ, or a reward is not finite.
    """
    if len(rewards) != len(clusters):
        raise ValueError(f"{len(rewards)} rewards for {len(clusters)} clusters")
    values = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a reward is not finite")
    names = sorted(set(clusters))
    if not names:
        return Interval(None, None, "none", 0)
    # Loaded here because it takes a second, and a refused command should not wait for it.
    from scipy import stats

    if np.all(values == values[0]) and values[0] in (0.0, 1.0):
        count = len(names)
        exact = stats.binomtest(int(values[0]) * count, count).proportion_ci(CONFIDENCE, method="exact")
        return Interval(round(float(exact.low), 6), round(float(exact.high), 6), "clopper-pearson", count)
    if len(names) < 2:
        return Interval(None, None, "none", len(names))
    position = {name: index for index, name in enumerate(names)}
    of_row = np.asarray([position[name] for name in clusters], dtype=np.intp)
    sums = np.bincount(of_row, weights=values, minlength=len(names))
    sizes = np.bincount(of_row, minlength=len(names)).astype(np.float64)
    # Sums of equal rewards differ in their last bits, and that is no spread.
    if np.ptp(sums / sizes) < SPREAD:
        return Interval(None, None, "none", len(names))

    def mean(total: np.ndarray, size: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(total.sum(axis=axis) / size.sum(axis=axis))

    result = stats.bootstrap(
        (sums, sizes),
        mean,
        n_resamples=RESAMPLES,
        paired=True,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    bounds = result.confidence_interval
    return Interval(
        round(float(bounds.low), 6), round(float(bounds.high), 6), "bootstrap-percentile", len(names)
    )
