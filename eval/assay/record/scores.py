"""Scores of families, each beside its counts, its interval and what a constant answer would have had.

A score is the sum of rewards over *all planned* rollouts: a failed request never leaves the denominator, and
where rows failed the score is a lower bound, with `score_ceiling` (every failed row right) beside it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from assay.record.repeats import Repeats, repeats_of
from assay.record.sample import Baseline, Sample
from assay.record.statistics import Method, mean_interval


class Counts(BaseModel):
    """How many rollouts were planned, and what became of them; the last two are told beside, not summed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    planned: int
    scored: int
    errored: int
    truncated: int
    missing: int
    empty: int
    duplicates: int

    @property
    def answered(self) -> int:
        """Rollouts with a score: scored and truncated-and-scored."""
        return self.scored + self.truncated

    @property
    def truncated_rate(self) -> float | None:
        """The share of rollouts with a score that a limit cut; None where none has a score."""
        return round(self.truncated / self.answered, 6) if self.answered else None


class FamilyScore(BaseModel):
    """One family's result.

    Attributes:
        entry: The profile's entry.
        family: The generator or subset.
        counts: Its rollouts.
        truncated_rate: Share of the rollouts with a score that a limit cut; None when nothing was answered.
        score: Sum of rewards / planned; None when nothing was answered.
        score_ceiling: The same with every errored or missing row counted as 1.
        low: Lower bound of the 95 % interval of `score`.
        high: Upper bound.
        interval_method: How the bounds were computed (assay.record.statistics).
        clusters: Distinct questions.
        baseline: Score of the best constant answer over the same tasks, None when the taskset tells none.
        baseline_answer: That answer.
        rewards: Each named reward's sum of scores / planned, before weights; empty when nothing was answered.
        distinct_answers: Distinct answers' digests.
        repeats: What the several rollouts of a task are; None where each task has one.
        mean_completion_tokens: Over answered rows, None when no row tells.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry: str
    family: str
    counts: Counts
    truncated_rate: float | None
    score: float | None
    score_ceiling: float | None
    low: float | None
    high: float | None
    interval_method: Method
    clusters: int
    baseline: float | None
    baseline_answer: str | None
    rewards: Mapping[str, float]
    distinct_answers: int
    repeats: Repeats | None
    mean_completion_tokens: float | None


def count(samples: Iterable[Sample]) -> Counts:
    """Count samples by what became of them."""
    rows = list(samples)
    tally = {
        status: sum(row.status == status for row in rows)
        for status in ("scored", "errored", "truncated", "missing")
    }
    questions = {(row.entry, row.task_key): row.cluster for row in rows}
    return Counts(
        planned=len(rows),
        empty=sum(row.empty for row in rows),
        duplicates=len(questions) - len(set(questions.values())),
        **tally,
    )


def family_seed(plan_digest: str, entry: str, family: str) -> int:
    """The bootstrap's seed for a family: from the plan's digest, so nobody chooses it."""
    text = f"{plan_digest}/{entry}/{family}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def score_family(
    samples: Sequence[Sample], plan_digest: str, baseline: Baseline | None, sampled: bool = False
) -> FamilyScore:
    """Score the rows of one family (at least one) of one entry.

    Args:
        samples: Every planned rollout of the family.
        plan_digest: Digest of the plan, from which the bootstrap's seed is taken.
        baseline: The constant answer that would score best.
        sampled: Whether the sampling lets a task's rollouts differ.
    """
    first = samples[0]
    counts = count(samples)
    rewards = [row.reward or 0.0 for row in samples]
    total = sum(rewards)
    answered = counts.answered > 0
    interval = mean_interval(
        rewards, [row.cluster for row in samples], family_seed(plan_digest, first.entry, first.family)
    )
    tokens = [row.completion_tokens for row in samples if row.completion_tokens is not None]
    return FamilyScore(
        entry=first.entry,
        family=first.family,
        counts=counts,
        truncated_rate=counts.truncated_rate,
        score=round(total / counts.planned, 6) if answered else None,
        score_ceiling=round((total + counts.errored + counts.missing) / counts.planned, 6),
        low=interval.low if answered else None,
        high=interval.high if answered else None,
        interval_method=interval.method if answered else "none",
        clusters=interval.clusters,
        baseline=None if baseline is None else round(baseline.score, 6),
        baseline_answer=None if baseline is None else baseline.answer,
        rewards=_by_name(samples) if answered else {},
        distinct_answers=len({row.answer_digest for row in samples if row.answer_digest}),
        repeats=repeats_of(samples, sampled),
        mean_completion_tokens=round(sum(tokens) / len(tokens), 3) if tokens else None,
    )


def _by_name(samples: Sequence[Sample]) -> dict[str, float]:
    names = sorted({name for row in samples for name in row.rewards})
    sums = {name: math.fsum(row.rewards.get(name, 0.0) for row in samples) for name in names}
    return {name: round(value / len(samples), 6) for name, value in sums.items()}


def score_families(
    samples: Sequence[Sample],
    plan_digest: str,
    baselines: Mapping[str, Mapping[str, Baseline]],
    sampled: Mapping[str, bool],
) -> tuple[FamilyScore, ...]:
    """Score every family of every entry.

    Args:
        samples: All rows, in the plan's order.
        plan_digest: Digest of the plan, from which bootstrap seeds are taken.
        baselines: Constant-answer baselines by entry and family.
        sampled: Whether the sampling lets a task's rollouts differ, by entry.
    """
    groups: dict[tuple[str, str], list[Sample]] = {}
    for row in samples:
        groups.setdefault((row.entry, row.family), []).append(row)
    return tuple(
        score_family(rows, plan_digest, baselines.get(entry, {}).get(family), sampled.get(entry, False))
        for (entry, family), rows in groups.items()
    )
