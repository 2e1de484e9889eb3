"""From a run's directory to its jobs' rows, as each backend reads its own records; nothing is started.

Used when a job has ended, when the run is recorded, and by `summarize` and `audit`, which compute everything
again from what lies on the disk. Rows stream: a job may have a million.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.backends.base import Backend, Command, Context, Ended, Normalised, Reached
from assay.coordinator.directory import attempt_folder, launch_folder
from assay.coordinator.state import JobState, NativeEnd, Verdict
from assay.errors import RunError
from assay.record.sample import Status
from assay.suite.job import Job
from assay.suite.suite import Suite
from assay.suite.target import Target

KILLED = NativeEnd(code=-9, why="died", said="")
"""How the child of an attempt ended that nobody lived to write down."""


@dataclass(frozen=True)
class Judged:
    """What the records of an attempt say, as far as the coordinator must know.

    Attributes:
        verdict: "done" when every planned row has a score.
        done: Rows of what happened.
        problems: Faults of the records.
        notes: Faults that fail nothing.
    """

    verdict: Verdict
    done: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def judge(backend: Backend, context: Context, ended: Ended) -> Judged:
    """Read an attempt's records once, and count."""
    normalised = backend.normalize(context, ended)
    counts: Counter[Status] = Counter(row.status for row in normalised.rows)
    answered = counts["scored"] + counts["truncated"]
    planned = backend.plan(context.job, context.target).total
    lacking = planned is not None and counts.total() < planned
    verdict: Verdict = "done"
    if normalised.problems or not answered:
        verdict = "failed"
    elif lacking or counts["errored"] or counts["missing"]:
        verdict = "partial"
    done = counts.total() - counts["missing"]
    return Judged(verdict, done, tuple(normalised.problems), tuple(normalised.notes))


def most_slots(job: Job, target: Target) -> int:
    """The most requests that a job may ever have in flight."""
    return min(job.max_concurrency or target.max_concurrency, target.max_concurrency)


def read(
    run: Path,
    suite: Suite,
    job: Job,
    state: JobState,
    backend: Backend,
    data: Mapping[str, Path],
    scratch: Path,
) -> Normalised:
    """The records of a job's last attempt.

    Args:
        run: The run directory.
        suite: What it asks.
        job: The job; it was begun.
        state: Its state.
        backend: Its backend.
        data: Local directories of its data, as far as they are here.
        scratch: A private folder.
    """
    return backend.normalize(context_of(run, suite, job, state, data, scratch), ended_of(state))


def context_of(
    run: Path, suite: Suite, job: Job, state: JobState, data: Mapping[str, Path], scratch: Path
) -> Context:
    """A job's last attempt, as its backend reads it; whoever starts anything with it is refused."""
    target = suite.target(job)
    return Context(
        job=job,
        target=target,
        suite_digest=suite.digest,
        folder=run / attempt_folder(job.id, state.attempt),
        run=run,
        launch=launch_folder(run, job.id),
        scratch=scratch,
        attempt=state.attempt,
        slots=most_slots(job, target),
        lane=None,
        data=data,
        start=_refused,
    )


def ended_of(state: JobState) -> Ended:
    """How the child of a job's last attempt ended."""
    end = state.ended or KILLED
    return Ended(code=end.code, why=end.why, said=end.said)


async def _refused(command: Command, reached: Callable[[], Reached]) -> Ended:
    raise RunError("nothing is started while records are read")
