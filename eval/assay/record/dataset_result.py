"""What one job of a suite came to: its counts, scores and intervals, and beside them what it took.

What was found and what it took are kept apart: a run that was killed and went on finds the same, though it
took more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from assay.record.repeats import Repeats
from assay.record.sample import Baseline, Sample
from assay.record.scores import FamilyScore
from assay.record.statistics import Bounds, Method
from assay.record.summary import Failure, Outcome
from assay.record.tally import Counts, Zeros, share
from assay.suite.job import Job
from assay.suite.suite import Retention

BudgetReached = Literal["tokens", "wall_seconds"]


class Facts(BaseModel):
    """A frozen part of a result."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Effort(Facts):
    """What a job took, over all its attempts; nothing of it is a finding. None is "nobody counted".

    Attributes:
        seconds: While it was active; pauses between a run and its resume are left out.
        attempts: How often its child was started.
        requests: Answers the target gave.
        retries: Requests that were repeated.
        replayed: Answers that came out of what an earlier attempt had kept.
        errors: Requests that failed for good.
        prompt_tokens: As the server counted them for the answers it gave.
        completion_tokens: The same for what it generated.
    """

    seconds: float | None = None
    attempts: int | None = None
    requests: int | None = None
    retries: int | None = None
    replayed: int | None = None
    errors: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Retained(Facts):
    """What the run kept of the evaluator's records, and what it removed when all had been counted.

    Attributes:
        policy: The suite's.
        acted: Whether it was carried out: only for a job that is done, or partial without a missing row.
        rows: Rows that did not go well (of these `errors` keeps the records).
        kept_rows: Native records of rows that are kept apart in `<job>/retained.jsonl`.
        removed_files: Files that are gone.
        removed_bytes: Their size.
    """

    policy: Retention
    acted: bool = False
    rows: int = 0
    kept_rows: int = 0
    removed_files: int = 0
    removed_bytes: int = 0


class DatasetCounts(Facts):
    """How many rollouts were planned, and what became of them.

    `planned = completed + failed + missing`, `completed = scored + truncated`; the others stand beside.

    Attributes:
        planned: All of them.
        completed: They have a score.
        scored: Of these: nothing cut the answer.
        failed: They ended in an error.
        truncated: Of the completed ones: a limit cut the answer.
        missing: They never happened.
        empty: Of the completed ones: no visible text.
        thought_only: Of the empty ones: the model thought, and then said nothing.
        unparsed: Of the completed ones: the scorer found no answer; None where no row tells.
        duplicates: Tasks that ask what another one asks.
    """

    planned: int
    completed: int
    scored: int
    failed: int
    truncated: int
    missing: int
    empty: int
    thought_only: int
    unparsed: int | None
    duplicates: int

    @classmethod
    def of(cls, counts: Counts, unread: int = 0) -> Self:
        """The same counts in these words, with rollouts that have no row at all among the missing ones."""
        return cls(
            planned=counts.planned + unread,
            completed=counts.answered,
            scored=counts.scored,
            failed=counts.errored,
            truncated=counts.truncated,
            missing=counts.missing + unread,
            empty=counts.empty,
            thought_only=counts.thought_only,
            unparsed=counts.unparsed,
            duplicates=counts.duplicates,
        )


class Rates(Facts):
    """Shares of rollouts; None of none.

    Attributes:
        failed: Errors of all planned.
        missing: Never happened, of all planned.
        truncated: Cut by a limit, of the completed ones.
        empty: Without visible text, of the completed ones.
        unparsed: Without an answer that the scorer found, of the completed ones.
    """

    failed: float | None
    missing: float | None
    truncated: float | None
    empty: float | None
    unparsed: float | None

    @classmethod
    def of(cls, counts: DatasetCounts) -> Self:
        """The rates of these counts."""
        return cls(
            failed=share(counts.failed, counts.planned),
            missing=share(counts.missing, counts.planned),
            truncated=share(counts.truncated, counts.completed),
            empty=share(counts.empty, counts.completed),
            unparsed=None if counts.unparsed is None else share(counts.unparsed, counts.completed),
        )


class TokensUsed(Facts):
    """Tokens as the rows tell them; None where no row tells.

    Attributes:
        prompt: Read.
        completion: Generated.
        mean_completion: Generated by a rollout that tells.
    """

    prompt: int | None
    completion: int | None
    mean_completion: float | None


class DatasetResult(Facts):
    """One job's result.

    Attributes:
        job: Its id.
        backend: Who asked.
        dataset: What was asked.
        target: Of whom, by the target's name.
        model: The name that was asked for.
        status: done, partial (rows have no score, or a budget was reached), failed or cancelled.
        problems: Faults that fail it.
        notes: What else a reader should know.
        error: Why it could not be run at all; None where it could.
        budget: The budget that ended it; None where none did.
        sampling: The options it was asked with.
        sampling_of: Whose they are: the job's, or the evaluator's own configuration's.
        counts: Its rollouts.
        rates: The same as shares.
        zeros: Rollouts that scored nothing, by why.
        primary: The benchmark's primary metric, whose mean the score is.
        score: Sum of rewards / planned; None where nothing was answered.
        score_ceiling: The same with every failed or missing row counted as 1.
        low: Lower bound of the 95 % interval of `score`.
        high: Upper bound.
        interval_method: How these two were computed.
        clustered: The normal interval with an error clustered by question.
        wilson: Wilson's interval, where every row is right or wrong and asks a question of its own.
        clusters: Distinct questions.
        metrics: Each named reward's sum / planned.
        distinct_answers: Distinct answers.
        repeats: What the several rollouts of a task are; None where each task has one.
        families: The same for each subset.
        reported: Metrics as the evaluator itself reports them. An overall figure is among them only where
            `official`.
        official: Everything that the benchmark's own overall figure stands for was asked and answered.
        tokens: As the rows tell them.
        failures: The most frequent errors.
        planned_before: Rollouts that were planned without a request; None where only the run could tell.
        effort: What it took.
        retained: What was kept of its records.
        artefacts: Where they are, below the run directory.
    """

    job: str
    backend: str
    dataset: str
    target: str
    model: str
    status: Outcome
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    error: str | None
    budget: BudgetReached | None
    sampling: Mapping[str, Any]
    sampling_of: Literal["job", "evaluator"]
    counts: DatasetCounts
    rates: Rates
    zeros: Zeros
    primary: str | None
    score: float | None
    score_ceiling: float | None
    low: float | None
    high: float | None
    interval_method: Method
    clustered: Bounds | None
    wilson: Bounds | None
    clusters: int
    metrics: Mapping[str, float]
    distinct_answers: int
    repeats: Repeats | None
    families: tuple[FamilyScore, ...]
    reported: Mapping[str, float]
    official: bool
    tokens: TokensUsed
    failures: tuple[Failure, ...]
    planned_before: int | None
    effort: Effort
    retained: Retained
    artefacts: tuple[str, ...]


@dataclass(frozen=True)
class JobRecord:
    """A job as the coordinator hands it over when it has ended, or was never begun.

    Attributes:
        job: What was asked.
        planned: Rollouts that were planned without a request; None where only the run can tell.
        rows: One a planned rollout; read once. Rollouts of a task stand beside each other.
        primary: The benchmark's primary metric, by name.
        reported: Metrics as the evaluator reports them.
        official: Whether its overall figure may be called so.
        sampling: The options as they reached the server; None where the job's generation decides them.
        baselines: What the best constant answer scores, by family.
        problems: Faults that fail it: a frozen input or the server changed, records that are not sound.
        notes: What does not: how its child ended, tails that were repaired.
        cancelled: The user ended the run before it was complete.
        budget: The budget that ended it.
        error: Why it could not be run at all.
        artefacts: Where its records are, below the run directory.
        effort: What it took.
        retained: What was removed of its records before; None where nothing was yet.
    """

    job: Job
    planned: int | None
    rows: Iterable[Sample] = ()
    primary: str | None = None
    reported: Mapping[str, float] = field(default_factory=dict)
    official: bool = False
    sampling: Mapping[str, Any] | None = None
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cancelled: bool = False
    budget: BudgetReached | None = None
    error: str | None = None
    artefacts: tuple[str, ...] = ()
    effort: Effort = field(default_factory=Effort)
    retained: Retained | None = None
