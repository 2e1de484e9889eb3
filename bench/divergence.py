"""How far an engine's next-token distributions are from a reference's.

Contract: both sides answered the same token ids (teacher-forced), and are
compared at the same positions over the same ids: the reference's top K, with
everything else in one rest bucket. That makes sides comparable of which one
gives its whole vocabulary and another only the log-probabilities of ids it is
asked for; it is zero for identical inputs and a lower bound of the true
divergence always (merging outcomes never adds divergence). A position that was
not measured is an error, never a zero.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

# Below the resolution of log-probabilities printed in single precision: a rest no larger is rounding.
_SMALLEST_REST = 2.0**-22
_PERCENTILES = (99.9, 99, 95, 90, 50, 10, 5, 1, 0.1)
RESAMPLES = 10_000


@dataclass(frozen=True)
class Side:
    """What one engine answered over some positions.

    Attributes:
        chosen: Log-probabilities of the reference's likeliest ids, [positions, ids].
        top: Its own likeliest ids, likeliest first, [positions, 5].
        truth: Log-probability of the token that follows in the text, [positions].
    """

    chosen: Floats
    top: Ids
    truth: Floats


@dataclass(frozen=True)
class Mean:
    """A mean over positions.

    Attributes:
        mean: The mean.
        se: sqrt((E[x^2] - mean^2) / (n - 1)), as if positions were independent.
        document_se: From the sums of residuals by document, which are not: the larger one is the honest one.
    """

    mean: float
    se: float
    document_se: float


@dataclass(frozen=True)
class Fidelity:
    """One engine's distance from a reference.

    Attributes:
        positions: Compared. documents: They are from. kl: KL(reference || engine), nats a position.
        kl_tail: The same by percentile, and "max" and "min". kl_reverse: KL(engine || reference). jsd:
        Jensen-Shannon divergence, nats. same_top: Share of positions with the same likeliest token; its se
        is sqrt(p (1 - p) / (n - 1)). top5: Mean share of the reference's five likeliest that are among the
        engine's five. flip_margin: Mean of the reference's margin (nats between its two likeliest) where
        the likeliest differs;
            None without a flip.
        delta_p: Mean change of the following token's probability, and its root mean square.
        delta_p_tail: The change by percentile.
        nll: -ln p of the following token.
        perplexity: exp of its mean; its se is perplexity * nll's.
        perplexity_ratio: Over the reference's; ln ratio's se is sqrt(a^2 + b^2 - 2 cov).
        perplexity_ratio_se: Of the ratio.
    """

    positions: int
    documents: int
    kl: Mean
    kl_tail: dict[str, float]
    kl_reverse: Mean
    jsd: Mean
    same_top: float
    same_top_se: float
    top5: float
    flip_margin: float | None
    delta_p: float
    delta_p_rms: float
    delta_p_tail: dict[str, float]
    nll: Mean
    perplexity: float
    perplexity_se: float
    perplexity_ratio: float
    perplexity_ratio_se: float


def log_softmax(logits: npt.NDArray[np.floating]) -> Floats:
    """Returns the natural log-probabilities over the last axis, in float64."""
    exact = logits.astype(np.float64)
    shifted = exact - exact.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float64)


def top_ids(log_probabilities: Floats, count: int) -> Ids:
    """Returns the ids of the `count` largest entries of each row, largest first, ties to the lowest id."""
    rows = np.atleast_2d(log_probabilities)
    out = np.empty((len(rows), count), np.int64)
    for index, row in enumerate(rows):
        least = np.partition(row, len(row) - count)[len(row) - count]
        candidates = np.flatnonzero(row >= least)  # ascending: a stable sort keeps the lowest of equals
        out[index] = candidates[np.argsort(-row[candidates], kind="stable")[:count]]
    return out.reshape(*log_probabilities.shape[:-1], count)


def kl_divergence(reference: Floats, candidate: Floats) -> Floats:
    """Returns KL(reference || candidate) of each position, in nats.

    KL = sum over the ids of p ln(p / q), plus r_p ln(r_p / r_q) with the rests
    r = 1 - sum. Rests are floored at what single precision can tell from zero.

    Args:
        reference: natural log-probabilities of the chosen ids, [positions, ids].
        candidate: the other side's, of the same ids in the same order.

    Raises:
        ValueError: the shapes differ, or an entry is not a log-probability.
    """
    if reference.shape != candidate.shape or reference.ndim != 2:
        raise ValueError(f"shapes {reference.shape} and {candidate.shape} are not one [positions, ids]")
    for name, side in (("reference", reference), ("candidate", candidate)):
        if not np.isfinite(side).all() or (side > 1e-6).any():
            raise ValueError(f"the {name} has entries that are no log-probabilities of measured ids")
    p = np.exp(reference)
    rest_p = np.maximum(1.0 - p.sum(axis=-1), _SMALLEST_REST)
    rest_q = np.maximum(1.0 - np.exp(candidate).sum(axis=-1), _SMALLEST_REST)
    chosen = (p * (reference - candidate)).sum(axis=-1)
    return np.asarray(chosen + rest_p * np.log(rest_p / rest_q), np.float64)


def measured(logits: npt.NDArray[np.floating], ids: Ids, following: Ids) -> Side:
    """Reduce full logits to what is compared.

    Args:
        logits: [positions, vocabulary].
        ids: The reference's likeliest, [positions, ids].
        following: The token that follows each position.
    """
    everything = log_softmax(logits)
    return Side(
        np.take_along_axis(everything, ids, -1),
        top_ids(everything, 5),
        np.take_along_axis(everything, following[:, None], -1)[:, 0],
    )


def mean_of(values: Floats, documents: Ids) -> Mean:
    """The mean of values over positions, with both standard errors; `documents` names each position's."""
    count, mean = len(values), float(values.mean())
    square = max(float((values * values).mean()) - mean * mean, 0.0)
    sums = np.bincount(documents, weights=values - mean)[np.bincount(documents) > 0]
    clustered = math.inf
    if len(sums) > 1:
        clustered = math.sqrt(float((sums * sums).sum()) * len(sums) / (len(sums) - 1)) / count
    return Mean(mean, math.sqrt(square / (count - 1)), clustered)


def fidelity(reference: Side, engine: Side, documents: Ids) -> Fidelity:
    """Summarise one engine.

    Args:
        reference: The exact side.
        engine: The other, at the same positions.
        documents: The document of each position, as small whole numbers.

    Raises:
        ValueError: fewer than two positions, or shapes that differ.
    """
    kl = kl_divergence(reference.chosen, engine.chosen)
    count = len(kl)
    if (
        count < 2
        or not (reference.top.shape == engine.top.shape == (count, 5))
        or documents.shape != kl.shape
    ):
        raise ValueError(f"{count} positions, {reference.top.shape} and {engine.top.shape} likeliest ids")
    same = reference.top[:, 0] == engine.top[:, 0]
    share = float(same.mean())
    margin = reference.chosen[:, 0] - reference.chosen[:, 1]
    shared = (reference.top[:, :, None] == engine.top[:, None, :]).any(-1)
    delta = np.exp(engine.truth) - np.exp(reference.truth)
    nll = mean_of(-engine.truth, documents)
    exact = mean_of(-reference.truth, documents)
    covariance = float(np.cov(engine.truth, reference.truth)[0, 1]) / count
    ratio = math.exp(nll.mean - exact.mean)
    spread = max(nll.se**2 + exact.se**2 - 2 * covariance, 0.0)
    return Fidelity(
        positions=count,
        documents=len(set(documents.tolist())),
        kl=mean_of(kl, documents),
        kl_tail=_tail(kl),
        kl_reverse=mean_of(kl_divergence(engine.chosen, reference.chosen), documents),
        jsd=mean_of(jensen_shannon(reference.chosen, engine.chosen), documents),
        same_top=share,
        same_top_se=math.sqrt(share * (1.0 - share) / (count - 1)),
        top5=float(shared.mean()),
        flip_margin=None if same.all() else float(margin[~same].mean()),
        delta_p=float(delta.mean()),
        delta_p_rms=math.sqrt(float((delta * delta).mean())),
        delta_p_tail=_tail(delta),
        nll=nll,
        perplexity=math.exp(nll.mean),
        perplexity_se=math.exp(nll.mean) * nll.se,
        perplexity_ratio=ratio,
        perplexity_ratio_se=ratio * math.sqrt(spread),
    )


def jensen_shannon(first: Floats, second: Floats) -> Floats:
    """Returns the Jensen-Shannon divergence of each position over the same ids and rest, in nats."""
    middle = np.logaddexp(first, second) - math.log(2.0)
    return 0.5 * (kl_divergence(first, middle) + kl_divergence(second, middle))


@dataclass(frozen=True)
class Ratio:
    """One mean divergence over another's, from the same positions.

    Attributes:
        ratio: Of the means.
        by_position: Its 95 % interval, BCa over positions, kept in pairs.
        by_document: The same over documents, whose positions belong together.
        upper: The larger upper end.
    """

    ratio: float
    by_position: tuple[float, float]
    by_document: tuple[float, float]
    upper: float


def kl_ratio(ours: Floats, theirs: Floats, documents: Ids, seed: int) -> Ratio:
    """Compare two engines' divergences, position by position.

    Raises:
        ValueError: the other side's mean is not positive, so there is no ratio.
    """
    if float(theirs.mean()) <= 0:
        raise ValueError("the other side's mean divergence is not positive")
    names = np.unique(documents)
    sums = [np.array([float(values[documents == name].sum()) for name in names]) for values in (ours, theirs)]
    positions = _interval(ours, theirs, seed)
    clusters = _interval(sums[0], sums[1], seed)
    ratio = float(ours.mean() / theirs.mean())
    return Ratio(ratio, positions, clusters, max(positions[1], clusters[1]))


def _interval(ours: Floats, theirs: Floats, seed: int) -> tuple[float, float]:
    def ratio(a: Floats, b: Floats, axis: int = -1) -> Floats:
        return np.asarray(a.mean(axis=axis) / b.mean(axis=axis), np.float64)

    low = high = math.nan
    for method in ("BCa", "percentile"):  # BCa is undefined where leaving a position out changes nothing
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = stats.bootstrap(
                (ours, theirs),
                ratio,
                paired=True,
                vectorized=True,
                n_resamples=RESAMPLES,
                batch=500,
                method=method,
                rng=np.random.default_rng(seed),
            ).confidence_interval
        low, high = float(found.low), float(found.high)
        if math.isfinite(low) and math.isfinite(high):
            break
    return low, high


def _tail(values: Floats) -> dict[str, float]:
    percentiles = {f"{percent:g}": float(np.percentile(values, percent)) for percent in _PERCENTILES}
    return {"max": float(values.max()), **percentiles, "min": float(values.min())}
