"""Scores of families, each beside its counts, its interval and what a constant answer would have had.

A score is the sum of rewards over *all planned* rollouts: a failed request never leaves the denominator, and
where rows failed the score is a lower bound, with `score_ceiling` (every failed row right) beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from assay.record.ledger import Ledger
from assay.record.repeats import Repeats
from assay.record.sample import Baseline, Sample
from assay.record.statistics import Bounds, Method, clustered, interval, wilson
from assay.record.tally import Counts, Tally


class FamilyScore(BaseModel):
    """One family's result.

    Attributes:
        entry: The profile's entry, or the suite's job.
        family: The generator or subset.
        counts: Its rollouts.
        truncated_rate: Share of the rollouts with a score that a limit cut; None when nothing was answered.
        score: Sum of rewards / planned; None when nothing was answered.
        score_ceiling: The same with every errored or missing row counted as 1.
        low: Lower bound of the 95 % interval of `score`.
        high: Upper bound.
        interval_method: How the bounds were computed (assay.record.statistics).
        clustered: The normal interval with an error clustered by question; None where nothing differs.
        wilson: Wilson's interval; None unless every row is right or wrong and asks a question of its own.
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
    clustered: Bounds | None
    wilson: Bounds | None
    clusters: int
    baseline: float | None
    baseline_answer: str | None
    rewards: Mapping[str, float]
    distinct_answers: int
    repeats: Repeats | None
    mean_completion_tokens: float | None


def count(samples: Iterable[Sample]) -> Counts:
    """Count samples by what became of them."""
    with Ledger() as ledger:
        tally = Tally(ledger, None)
        groups: dict[tuple[str, str], list[Sample]] = {}
        for row in samples:
            groups.setdefault((row.entry, row.task_key), []).append(row)
        for rows in groups.values():
            tally.add(rows)
        return tally.counts()


def score_tally(
    tally: Tally, entry: str, family: str, baseline: Baseline | None, sampled: bool
) -> FamilyScore:
    """Score what was counted (at least one row).

    Args:
        tally: Every planned rollout of the family.
        entry: The profile's entry, or the suite's job.
        family: The generator or subset.
        baseline: The constant answer that would score best.
        sampled: Whether the sampling lets a task's rollouts differ.
    """
    counts = tally.counts()
    answered = counts.answered > 0
    spread, questions = tally.spread(), tally.ledger.questions(tally.family)
    bounds = interval(questions, spread)
    mean = spread.total / counts.planned
    tokens = tally.completion
    return FamilyScore(
        entry=entry,
        family=family,
        counts=counts,
        truncated_rate=counts.truncated_rate,
        score=round(mean, 6) if answered else None,
        score_ceiling=round((spread.total + counts.errored + counts.missing) / counts.planned, 6),
        low=bounds.low if answered else None,
        high=bounds.high if answered else None,
        interval_method=bounds.method if answered else "none",
        clustered=clustered(questions, spread) if answered else None,
        wilson=wilson(questions, spread) if answered else None,
        clusters=bounds.clusters,
        baseline=None if baseline is None else round(baseline.score, 6),
        baseline_answer=None if baseline is None else baseline.answer,
        rewards={name: round(tally.named[name].value / counts.planned, 6) for name in sorted(tally.named)}
        if answered
        else {},
        distinct_answers=tally.ledger.answers(tally.family),
        repeats=tally.repeats.result(sampled, mean),
        mean_completion_tokens=round(tokens.total / tokens.rows, 3) if tokens.rows else None,
    )


def score_family(samples: Sequence[Sample], baseline: Baseline | None, sampled: bool = False) -> FamilyScore:
    """Score the rows of one family (at least one) of one entry; see `score_tally`.

    Args:
        samples: Every planned rollout of the family.
        baseline: The constant answer that would score best.
        sampled: Whether the sampling lets a task's rollouts differ.
    """
    tasks: dict[str, list[Sample]] = {}
    for row in samples:
        tasks.setdefault(row.task_key, []).append(row)
    with Ledger() as ledger:
        tally = Tally(ledger, 0)
        for rows in tasks.values():
            tally.add(rows)
        return score_tally(tally, samples[0].entry, samples[0].family, baseline, sampled)


def score_families(
    samples: Sequence[Sample],
    baselines: Mapping[str, Mapping[str, Baseline]],
    sampled: Mapping[str, bool],
) -> tuple[FamilyScore, ...]:
    """Score every family of every entry.

    Args:
        samples: All rows, in the plan's order.
        baselines: Constant-answer baselines by entry and family.
        sampled: Whether the sampling lets a task's rollouts differ, by entry.
    """
    groups: dict[tuple[str, str], list[Sample]] = {}
    for row in samples:
        groups.setdefault((row.entry, row.family), []).append(row)
    return tuple(
        score_family(rows, baselines.get(entry, {}).get(family), sampled.get(entry, False))
        for (entry, family), rows in groups.items()
    )
