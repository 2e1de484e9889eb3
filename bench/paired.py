"""What pairs of measurements say: a ratio, its intervals, and the smallest effect they could have shown.

Contract: measurements come in ABBA order, one of each side in a pair, so that a drift of the machine falls on
both alike. All is computed on d_i = ln(ours_i / theirs_i), where a value is a speed (larger is better). The
bootstrap is seeded, so the same pairs always give the same interval.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

RESAMPLES = 10_000
CONFIDENCE = 0.95
POWER = 0.80
# Two processes of one program differ by where their pages lie, always the same way: no noise of pairs.
CONTROL_SLACK = 0.02
FEWEST_FOR_BOOTSTRAP = 4  # below that a resampled median is one of the pairs themselves


@dataclass(frozen=True)
class Interval:
    """A range of ratios; None on both ends where there are too few pairs."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """Our speed over the other side's, from pairs.

    Attributes:
        pairs: How many.
        ratio: exp(median d).
        mean_ratio: exp(mean d).
        bootstrap: BCa interval of the median (10,000 resamples of the pairs), as ratios.
        t_interval: Student's interval of the mean, as ratios.
        sign_p: Two-sided exact sign test of "no difference".
        mde: Smallest relative effect that so many pairs of this spread show with power 0.8:
            exp((z_0.975 + z_0.8) s_d / sqrt(n)) - 1. None for one pair.
    """

    pairs: int
    ratio: float
    mean_ratio: float
    bootstrap: Interval
    t_interval: Interval
    sign_p: float
    mde: float | None


def abba(pairs: int) -> list[bool]:
    """Whether ours goes first, for each pair: yes, no, no, yes, and again."""
    return [index % 4 in (0, 3) for index in range(pairs)]


def compare(ours: Sequence[float], theirs: Sequence[float], seed: int) -> Comparison:
    """Compare paired speeds.

    Args:
        ours: Speeds of our side, in the order of the pairs.
        theirs: The other side's.
        seed: Of the bootstrap.

    Raises:
        ValueError: no pairs, unequal counts, or a speed that is not positive and finite.
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{len(ours)} and {len(theirs)} measurements make no pairs")
    if not all(math.isfinite(value) and value > 0 for value in (*ours, *theirs)):
        raise ValueError("a speed is not positive and finite")
    d = np.log(np.asarray(ours, np.float64) / np.asarray(theirs, np.float64))
    count = len(d)
    mean = float(d.mean())
    spread = float(d.std(ddof=1)) if count > 1 else None
    half = None if spread is None else float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * spread
    scale = math.sqrt(count)
    unequal = int((d != 0).sum())
    sign = float(stats.binomtest(int((d > 0).sum()), unequal, 0.5).pvalue) if unequal else 1.0
    return Comparison(
        pairs=count,
        ratio=math.exp(float(np.median(d))),
        mean_ratio=math.exp(mean),
        bootstrap=_bootstrap(d, seed),
        t_interval=Interval(None, None)
        if half is None
        else Interval(math.exp(mean - half / scale), math.exp(mean + half / scale)),
        sign_p=sign,
        mde=None if spread is None else math.expm1(_critical() * spread / scale),
    )


def _critical() -> float:
    return float(stats.norm.ppf(0.5 + CONFIDENCE / 2) + stats.norm.ppf(POWER))


def _bootstrap(d: npt.NDArray[np.float64], seed: int) -> Interval:
    if len(d) < FEWEST_FOR_BOOTSTRAP:
        return Interval(None, None)
    low = high = math.nan
    for method in ("BCa", "percentile"):  # BCa is undefined where leaving one pair out changes nothing
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            interval = stats.bootstrap(
                (d,),
                np.median,
                n_resamples=RESAMPLES,
                confidence_level=CONFIDENCE,
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        low, high = float(interval.low), float(interval.high)
        if math.isfinite(low) and math.isfinite(high):
            break
    return Interval(math.exp(low), math.exp(high))


def control_is_void(control: Comparison) -> bool:
    """Whether an A/A comparison found an effect where there is none: above its MDE and the slack."""
    return control.mde is None or abs(control.mean_ratio - 1.0) > max(control.mde, CONTROL_SLACK)
