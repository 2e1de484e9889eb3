"""From one job's rows to its result: each row is read once, counted, and handed on."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from assay.errors import AssayError
from assay.record import asked
from assay.record.dataset_result import (
    DatasetCounts,
    DatasetResult,
    JobRecord,
    Rates,
    Retained,
    TokensUsed,
)
from assay.record.ledger import Ledger
from assay.record.native import encodable
from assay.record.sample import Sample
from assay.record.scores import FamilyScore, score_tally
from assay.record.summary import ERROR_CHARACTERS, FAILURES_TOLD, Failure, Outcome, outcome
from assay.record.sums import HELD
from assay.record.tally import Tally, Zeros
from assay.suite.job import Generation
from assay.suite.suite import Suite

OVERALL = "overall"

TEXTS = ("task_key", "family", "cluster", "error", "finish_reason", "stop_condition")

Take = Callable[[Sample], None]


class Errors:
    """The most frequent errors, of any number of rows: rare ones beyond `HELD` different ones are let go."""

    def __init__(self) -> None:
        self._lines: Counter[str] = Counter()

    def add(self, error: str) -> None:
        """An error of a row."""
        self._lines[" ".join(error.split())[:ERROR_CHARACTERS]] += 1
        if len(self._lines) > HELD:
            self._lines = Counter(dict(self._lines.most_common(HELD // 2)))

    def told(self) -> tuple[Failure, ...]:
        """The most frequent ones, first seen first."""
        return tuple(Failure(error=line, rows=rows) for line, rows in self._lines.most_common(FAILURES_TOLD))


def result_of(suite: Suite, record: JobRecord, take: Take) -> DatasetResult:
    """One job's result; its rows are read to their end, and each is handed on.

    Args:
        suite: What was asked.
        record: The job as it ended.
        take: Called with each row in turn; what it raises goes up.
    """
    with Ledger() as ledger:
        reading = _Reading(ledger, record, take)
        reading.read()
        return _result(suite, record, reading)


class _Reading:
    """The rows of one job while they are read."""

    def __init__(self, ledger: Ledger, record: JobRecord, take: Take) -> None:
        self.ledger = ledger
        self.record = record
        self.take = take
        self.errors = Errors()
        self.families: dict[str, Tally] = {}
        self.faults: list[str] = []
        self.seen = 0
        self._strangers = 0
        self._twice = 0

    def read(self) -> None:
        """Count every row; a record that cannot be read any further is a fault, and what was read counts."""
        rows = self._checked()
        for (family, _), task in itertools.groupby(rows, key=lambda row: (row.family, row.task_key)):
            tally = self.families.setdefault(family, Tally(self.ledger, len(self.families)))
            together = list(task)
            self._twice += len(together) - len({row.rollout for row in together})
            tally.add(together)
        apart = self.ledger.tasks() and self.ledger.repeated
        if apart:
            self.faults.append(f"its records tell of {apart} task(s) in several places")
        if self._twice:
            self.faults.append(f"its records tell of {self._twice} rollout(s) twice")
        if self._strangers:
            self.faults.append(f"{self._strangers} row(s) are of another job")
        self._against_the_plan()

    def _checked(self) -> Iterable[Sample]:
        rows = iter(self.record.rows)
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except (AssayError, ValidationError, ValueError, KeyError, TypeError, OSError) as error:
                self.faults.append(f"its records cannot be read beyond {self.seen} row(s): {_line(error)}")
                return
            row = _encodable(row)
            if row.entry != self.record.job.id:
                self._strangers += 1
                continue
            self.seen += 1
            if row.error:
                self.errors.add(row.error)
            self.take(row)
            yield row

    @property
    def unread(self) -> int:
        """Rollouts that were planned and have no row."""
        return max(0, (self.record.planned or 0) - self.seen)

    def _against_the_plan(self) -> None:
        record, planned = self.record, self.record.planned
        excused = record.cancelled or record.error or record.budget or record.problems or self.faults
        if planned is None or planned == self.seen or (excused and self.seen < planned):
            return
        self.faults.append(f"its records tell of {self.seen} rollout(s), and {planned} were planned")


def _result(suite: Suite, record: JobRecord, reading: _Reading) -> DatasetResult:
    job = record.job
    options = _options(job.generation) if record.sampling is None else dict(record.sampling)
    repeated = any(tally.repeats.seeds for tally in reading.families.values())
    if record.sampling is None:
        sampled = job.generation.sampled and (repeated or job.generation.seed is None)
    else:
        sampled = asked.may_differ(options, repeated)
    families = tuple(
        score_tally(tally, job.id, family, record.baselines.get(family), sampled)
        for family, tally in reading.families.items()
    )
    whole = _whole(job.dataset, families, reading, sampled)
    everything = _everything(reading)
    counts = DatasetCounts.of(everything.counts(), reading.unread)
    problems = tuple(dict.fromkeys(map(encodable, (*record.problems, *reading.faults))))
    status = _status(record, counts, everything, problems)
    official = record.official and status == "done"
    target = suite.target(job)
    return DatasetResult(
        job=job.id,
        backend=job.backend,
        dataset=job.dataset,
        target=job.target,
        model=target.model or target.serve or "",
        status=status,
        problems=problems,
        notes=tuple(map(encodable, record.notes)),
        error=None if record.error is None else encodable(record.error),
        budget=record.budget,
        sampling=options,
        sampling_of="job" if record.sampling is None else "evaluator",
        counts=counts,
        rates=Rates.of(counts),
        zeros=Zeros(**{name: everything.zeros[name] for name in Zeros.model_fields}),
        primary=record.primary,
        **_figures(whole, everything, counts),
        families=families,
        reported={
            name: value
            for name, value in sorted(record.reported.items())
            if math.isfinite(value) and (official or name.lower() != OVERALL)
        },
        official=official,
        tokens=TokensUsed(
            prompt=everything.prompt.total if everything.prompt.rows else None,
            completion=everything.completion.total if everything.completion.rows else None,
            mean_completion=whole.mean_completion_tokens if whole else None,
        ),
        failures=reading.errors.told(),
        planned_before=record.planned,
        effort=record.effort,
        retained=record.retained or Retained(policy=suite.running.retention),
        artefacts=record.artefacts,
    )


def _everything(reading: _Reading) -> Tally:
    """All families together; the one there is, where there is one."""
    if len(reading.families) == 1:
        return next(iter(reading.families.values()))
    together = Tally(reading.ledger, None)
    for tally in reading.families.values():
        together.merge(tally)
    return together


def _whole(
    dataset: str, families: Sequence[FamilyScore], reading: _Reading, sampled: bool
) -> FamilyScore | None:
    if len(families) == 1:
        return families[0]
    if not families:
        return None
    return score_tally(_everything(reading), reading.record.job.id, dataset, None, sampled)


def _figures(whole: FamilyScore | None, everything: Tally, counts: DatasetCounts) -> dict[str, Any]:
    """Score and interval; over all that was planned, also where the records lack rows."""
    unread = whole is not None and counts.planned > whole.counts.planned
    if whole is None or not counts.completed:
        none = dict.fromkeys(("score", "score_ceiling", "low", "high", "clustered", "wilson", "repeats"))
        rest = {"clusters": 0, "metrics": {}, "distinct_answers": 0}
        return {**none, **rest, "interval_method": "none"}
    figures: dict[str, Any] = {
        name: getattr(whole, name)
        for name in ("score", "score_ceiling", "low", "high", "interval_method", "clustered", "wilson")
    }
    metrics = dict(whole.rewards)
    if unread:
        # What has no row cannot be resampled: the score stands, and no bounds are claimed for it.
        total = everything.rewards.value
        figures |= {
            "score": round(total / counts.planned, 6),
            "score_ceiling": round((total + counts.failed + counts.missing) / counts.planned, 6),
            **dict.fromkeys(("low", "high", "clustered", "wilson")),
            "interval_method": "none",
        }
        metrics = {name: round(everything.named[name].value / counts.planned, 6) for name in sorted(metrics)}
    return {
        **figures,
        "clusters": whole.clusters,
        "metrics": metrics,
        "distinct_answers": whole.distinct_answers,
        "repeats": None if unread else whole.repeats,
    }


def _status(record: JobRecord, counts: DatasetCounts, everything: Tally, problems: Sequence[str]) -> Outcome:
    if record.cancelled:
        return "cancelled"
    if problems or record.error:
        return "failed"
    if record.budget:
        # That a budget was too small for a single answer is the budget's doing.
        return "partial" if counts.failed or counts.missing else "done"
    found = outcome(everything.counts(), problems, cancelled=False)
    return "partial" if found == "done" and counts.missing else found


def _options(generation: Generation) -> dict[str, Any]:
    given = generation.model_dump(mode="json", exclude_none=True)
    flat = dict(given.pop("extra_body", {})) | {name: value for name, value in given.items() if value != []}
    return {name: flat[name] for name in sorted(flat)}


def _encodable(row: Sample) -> Sample:
    """The row, whose texts an evaluator's JSON may have filled with what no file can hold."""
    found = {}
    for name in TEXTS:
        text = getattr(row, name)
        if text and not text.isascii() and (better := encodable(text)) != text:
            found[name] = better
    return row.model_copy(update=found) if found else row


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
