"""`summary.json`: what a run found, computed from its samples alone, so that an auditor computes the same.

Scores stand for each family (`assay.record.scores`), what was asked and how much of it came back for each
entry. There is no number over several families of one kind, and none over entries or benchmarks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from assay.record.sample import Sample
from assay.record.scores import FamilyScore
from assay.record.statistics import CONFIDENCE
from assay.record.tally import Counts

SCHEMA: Literal["assay/summary/v3"] = "assay/summary/v3"
FAILURES_TOLD = 3
ERROR_CHARACTERS = 300

Outcome = Literal["done", "partial", "failed", "cancelled"]
EXIT_CODES: Mapping[Outcome, int] = {"done": 0, "partial": 4, "failed": 5, "cancelled": 6}


class EntryFacts(BaseModel):
    """What was asked in one entry, and how much of it came back; its scores stand with its families.

    Attributes:
        entry: The profile's entry.
        tasks: Planned, after the taskset's own filters.
        tasks_found: Of these, how many the native records hold a row of.
        rollouts: Planned of each task.
        seeds: Of the rollouts, where each has one of its own.
        sampling: The options that its requests were to have.
        limits: What else may end a rollout: turns, tokens over all of them.
        counts: Its rollouts.
        truncated_rate: Share of the rollouts with a score that a limit cut; None when nothing was answered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry: str
    tasks: int
    tasks_found: int
    rollouts: int
    seeds: tuple[int, ...]
    sampling: Mapping[str, Any]
    limits: Mapping[str, Any]
    counts: Counts
    truncated_rate: float | None


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
        pins: The pin set that was in force; only "production" is what the profile promises.
        status: done, partial (some rows have no score), failed (none has, or the record is not sound),
            cancelled.
        problems: Faults that fail the run: a changed input or server, rows nobody planned.
        notes: What else went wrong, in words.
        runtime: Where rollouts ran: "docker", "subprocess", or "none" where the evaluator starts no program.
        egress: "cut" or "not enforced".
        model: The name asked of the server.
        server: The server's `system_fingerprint` as it claims it, None where it offers no identity.
        confidence: Of every interval.
        counts: Over the whole run.
        entries: What was asked in each entry, in the order of the plan.
        failures: The most frequent errors of rows, at most `FAILURES_TOLD`.
        families: One result a family, in the order of the plan.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/summary/v3"] = SCHEMA
    profile: str
    description: str
    pins: str
    status: Outcome
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    runtime: str
    egress: str
    model: str
    server: str | None
    confidence: float = CONFIDENCE
    counts: Counts
    entries: tuple[EntryFacts, ...]
    failures: tuple[Failure, ...]
    families: tuple[FamilyScore, ...]


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
