"""How far an engine's next-token distributions are from a reference's.

Contract: both sides answered the same token ids (teacher-forced), and are
compared at the same positions over the same ids: the reference's top K, with
everything else in one rest bucket. That makes sides comparable of which one
gives its whole vocabulary and another only the log-probabilities of ids it is
asked for; it is zero for identical inputs and a lower bound of the true
divergence always (merging outcomes never adds divergence). A position that was
not measured is an error, never a zero.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

# Below the resolution of log-probabilities printed in single precision: a rest no larger is rounding.
_SMALLEST_REST = 2.0**-22


@dataclass(frozen=True)
class Fidelity:
    """One engine's distance from a reference over some positions."""

    positions: int
    kl_mean: float  # nats a position
    kl_se: float  # standard error of the mean
    kl_median: float
    kl_99: float  # 99th percentile
    kl_max: float
    same_top: float  # share of positions at which both have the same most likely token
    same_top_se: float


def log_softmax(logits: npt.NDArray[np.floating]) -> Floats:
    """Returns the natural log-probabilities over the last axis, in float64."""
    exact = logits.astype(np.float64)
    shifted = exact - exact.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float64)


def top_ids(log_probabilities: Floats, count: int) -> Ids:
    """Returns the ids of the `count` largest entries of each row, largest first, ties to the lowest id."""
    order = np.argsort(-log_probabilities, axis=-1, kind="stable")
    return np.asarray(order[..., :count], np.int64)


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


def fidelity(reference: Floats, candidate: Floats, reference_top: Ids, candidate_top: Ids) -> Fidelity:
    """Summarises one engine.

    Standard errors: sqrt((E[x^2] - mean^2) / (n - 1)) of the divergence, sqrt(p (1 - p) / (n - 1)) of
    the agreement.

    Args:
        reference: log-probabilities of the chosen ids, [positions, ids].
        candidate: the engine's, of the same ids.
        reference_top: the reference's most likely id at each position.
        candidate_top: the engine's.

    Raises:
        ValueError: fewer than two positions, or shapes that differ.
    """
    kl = kl_divergence(reference, candidate)
    if len(kl) < 2 or reference_top.shape != kl.shape or candidate_top.shape != kl.shape:
        raise ValueError(f"{len(kl)} positions, {reference_top.shape} and {candidate_top.shape} top ids")
    same = float((reference_top == candidate_top).mean())
    mean = float(kl.mean())
    return Fidelity(
        positions=len(kl),
        kl_mean=mean,
        kl_se=float(np.sqrt(max(float((kl * kl).mean()) - mean * mean, 0.0) / (len(kl) - 1))),
        kl_median=float(np.median(kl)),
        kl_99=float(np.quantile(kl, 0.99)),
        kl_max=float(kl.max()),
        same_top=same,
        same_top_se=float(np.sqrt(same * (1.0 - same) / (len(kl) - 1))),
    )
