"""`summary.json`: what a run found, computed from its samples alone, so that an auditor computes the same.

A score is the sum of rewards over *all planned* rollouts: a failed request never leaves the denominator, and
where rows failed the score is a lower bound, with `score_ceiling` (every failed row right) beside it. There
is no number over several families of one kind, and none over benchmarks.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from assay.record.sample import Baseline, Sample
from assay.record.statistics import CONFIDENCE, Method, mean_interval

SCHEMA = "assay/summary/v1"
FAILURES_TOLD = 3
ERROR_CHARACTERS = 300

Outcome = Literal["done", "partial", "failed", "cancelled"]
EXIT_CODES: Mapping[Outcome, int] = {"done": 0, "partial": 4, "failed": 5, "cancelled": 6}


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


class FamilyScore(BaseModel):
    """One family's result.

    Attributes:
        entry: The profile's entry.
        family: The generator or subset.
        counts: Its rollouts.
        score: Sum of rewards / planned; None when nothing was answered.
        score_ceiling: The same with every errored or missing row counted as 1.
        low: Lower bound of the 95 % interval of `score`.
        high: Upper bound.
        interval_method: How the bounds were computed (assay.record.statistics).
        clusters: Distinct questions.
        baseline: Score of the best constant answer over the same tasks, None when the taskset tells none.
        baseline_answer: That answer.
        distinct_answers: Distinct answers' digests.
        mean_completion_tokens: Over answered rows, None when no row tells.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry: str
    family: str
    counts: Counts
    score: float | None
    score_ceiling: float | None
    low: float | None
    high: float | None
    interval_method: Method
    clusters: int
    baseline: float | None
    baseline_answer: str | None
    distinct_answers: int
    mean_completion_tokens: float | None


class Failure(BaseModel):
    """Why rows failed, as the evaluator says it, and how many failed so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error: str
    rows: int


class Summary(BaseModel):
    """The whole of `summary.json`.

    Attributes:
        schema_version: Of this form.
        profile: The profile's name.
        description: What the profile is.
        status: done, partial (some rows have no score), failed (none has, or the record is not sound),
            cancelled.
        problems: Faults that fail the run: a changed input or server, rows nobody planned.
        notes: What else went wrong, in words.
        runtime: "docker" or "subprocess".
        egress: "cut" or "not enforced".
        model: The name asked of the server.
        server: The server's `system_fingerprint` as it claims it, None where it offers no identity.
        confidence: Of every interval.
        counts: Over the whole run.
        failures: The most frequent errors of rows, at most `FAILURES_TOLD`.
        families: One result a family, in the order of the plan.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: str = SCHEMA
    profile: str
    description: str
    status: Outcome
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    runtime: str
    egress: str
    model: str
    server: str | None
    confidence: float = CONFIDENCE
    counts: Counts
    failures: tuple[Failure, ...]
    families: tuple[FamilyScore, ...]


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


def failures(samples: Iterable[Sample]) -> tuple[Failure, ...]:
    """The most frequent errors, each as one line of at most `ERROR_CHARACTERS`, first seen first."""
    lines = Counter(" ".join(row.error.split())[:ERROR_CHARACTERS] for row in samples if row.error)
    return tuple(Failure(error=line, rows=rows) for line, rows in lines.most_common(FAILURES_TOLD))


def outcome(counts: Counts, problems: Sequence[str], cancelled: bool) -> Outcome:
    """What to call a run with these counts.

    Args:
        counts: Over the whole run.
        problems: Faults of the record itself (a changed input or server): any of them fails the run.
        cancelled: The user ended it.
    """
    if cancelled:
        return "cancelled"
    if problems or counts.answered == 0:
        return "failed"
    if counts.errored or counts.missing:
        return "partial"
    return "done"


def family_seed(plan_digest: str, entry: str, family: str) -> int:
    """The bootstrap's seed for a family: from the plan's digest, so nobody chooses it."""
    text = f"{plan_digest}/{entry}/{family}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def score_family(samples: Sequence[Sample], plan_digest: str, baseline: Baseline | None) -> FamilyScore:
    """Score the rows of one family (at least one) of one entry."""
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
        score=round(total / counts.planned, 6) if answered else None,
        score_ceiling=round((total + counts.errored + counts.missing) / counts.planned, 6),
        low=interval.low if answered else None,
        high=interval.high if answered else None,
        interval_method=interval.method if answered else "none",
        clusters=interval.clusters,
        baseline=None if baseline is None else round(baseline.score, 6),
        baseline_answer=None if baseline is None else baseline.answer,
        distinct_answers=len({row.answer_digest for row in samples if row.answer_digest}),
        mean_completion_tokens=round(sum(tokens) / len(tokens), 3) if tokens else None,
    )


def score_families(
    samples: Sequence[Sample], plan_digest: str, baselines: Mapping[str, Mapping[str, Baseline]]
) -> tuple[FamilyScore, ...]:
    """Score every family of every entry.

    Args:
        samples: All rows, in the plan's order.
        plan_digest: Digest of the plan, from which bootstrap seeds are taken.
        baselines: Constant-answer baselines by entry and family.
    """
    groups: dict[tuple[str, str], list[Sample]] = {}
    for row in samples:
        groups.setdefault((row.entry, row.family), []).append(row)
    return tuple(
        score_family(rows, plan_digest, baselines.get(entry, {}).get(family))
        for (entry, family), rows in groups.items()
    )
