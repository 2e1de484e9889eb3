"""What was asked and what was found, in the predicate's words: the same ones for profiles and suites."""

from __future__ import annotations

from collections.abc import Sequence

from assay.plan import EntryPlan, Plan
from assay.record import tally
from assay.record.dataset_result import DatasetCounts, DatasetResult
from assay.record.scores import FamilyScore
from assay.record.suite_summary import SuiteSummary
from assay.record.summary import EntryFacts, Summary
from assay.signing.materials import LAUNCH
from assay.signing.predicate import Asked, Counts, Score
from assay.signing.reading import Reading
from assay.suite.job import Job
from assay.suite.suite import Suite

Found = tuple[tuple[Asked, ...], tuple[Score, ...]]


def of_profile(reading: Reading, plan: Plan, summary: Summary) -> Found:
    """The entries and the families' scores of a profile's run.

    Args:
        reading: The run.
        plan: What it was to do.
        summary: What it found.
    """
    told = {facts.entry: facts for facts in summary.entries}
    asked = tuple(
        _entry(reading, plan, entry, told[entry.name], summary)
        for entry in plan.entries
        if entry.name in told
    )
    return asked, _families(summary.families, summary.confidence, None)


def _entry(reading: Reading, plan: Plan, entry: EntryPlan, facts: EntryFacts, summary: Summary) -> Asked:
    return Asked(
        name=entry.name,
        status=summary.status,
        evaluator=plan.evaluator,
        dataset=plan.taskset(entry),
        target=None,
        model=plan.server.model,
        rollouts=facts.rollouts,
        seeds=facts.seeds,
        limit=None,
        sampling=facts.sampling,
        limits=facts.limits,
        launch=reading.below(f"{LAUNCH}{entry.name}/"),
        counts=_counts(facts.counts),
    )


def of_suite(reading: Reading, suite: Suite, summary: SuiteSummary) -> Found:
    """The jobs and the scores, of each job and of its families, of a suite's run.

    Args:
        reading: The run.
        suite: What it was to ask.
        summary: What it found.
    """
    told = {result.job: result for result in summary.jobs}
    asked = tuple(_job(reading, job, told[job.id]) for job in suite.jobs if job.id in told)
    scores: list[Score] = []
    for result in summary.jobs:
        scores.append(_whole(result, summary.confidence))
        scores += _families(result.families, summary.confidence, result.primary)
    return asked, tuple(scores)


def _job(reading: Reading, job: Job, result: DatasetResult) -> Asked:
    return Asked(
        name=job.id,
        status=result.status,
        evaluator=result.backend,
        dataset=result.dataset,
        target=result.target,
        model=result.model,
        rollouts=job.repeats,
        seeds=(),
        limit=job.limit,
        sampling=result.sampling,
        limits={},
        launch=reading.below(f"{LAUNCH}{job.id}/"),
        counts=_dataset_counts(result.counts),
    )


def _whole(result: DatasetResult, confidence: float) -> Score:
    return Score(
        name=result.job,
        family=None,
        metric=result.primary,
        score=result.score,
        ceiling=result.score_ceiling,
        low=result.low,
        high=result.high,
        method=result.interval_method,
        confidence=confidence,
        clusters=result.clusters,
        baseline=None,
        metrics=result.metrics,
        counts=_dataset_counts(result.counts),
    )


def _families(families: Sequence[FamilyScore], confidence: float, metric: str | None) -> tuple[Score, ...]:
    return tuple(
        Score(
            name=family.entry,
            family=family.family,
            metric=metric,
            score=family.score,
            ceiling=family.score_ceiling,
            low=family.low,
            high=family.high,
            method=family.interval_method,
            confidence=confidence,
            clusters=family.clusters,
            baseline=family.baseline,
            metrics=family.rewards,
            counts=_counts(family.counts),
        )
        for family in families
    )


def _counts(counts: tally.Counts) -> Counts:
    return Counts.model_validate(counts.model_dump())


def _dataset_counts(counts: DatasetCounts) -> Counts:
    """A job's counts in a profile's words: what failed is what errored."""
    return Counts(
        planned=counts.planned,
        scored=counts.scored,
        errored=counts.failed,
        truncated=counts.truncated,
        missing=counts.missing,
        empty=counts.empty,
        thought_only=counts.thought_only,
        unparsed=counts.unparsed,
        duplicates=counts.duplicates,
    )
