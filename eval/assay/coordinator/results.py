"""What a suite's run found: its jobs' records, handed to `assay.record`, which counts and writes.

A job that was recorded as done keeps its recorded rows, and so does one whose evaluator's records are gone by
the suite's retention. Every other job is read from its last attempt. A job that never began is in the result
all the same, with everything that it was to ask as missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay import data
from assay.backends import registry
from assay.backends.base import Backend
from assay.coordinator.directory import attempt_folder, journal
from assay.coordinator.live import Live
from assay.coordinator.records import read
from assay.coordinator.state import JobState, State
from assay.errors import AssayError
from assay.record.dataset_result import Effort, JobRecord
from assay.record.sample import Sample
from assay.record.suite_results import recorded, summarise_suite, write_results
from assay.record.suite_summary import SuiteSummary
from assay.run.server_check import leaks
from assay.suite.job import Job
from assay.suite.suite import Suite


def write(live: Live) -> SuiteSummary:
    """Write rows and summary of a run; RunError when the disk is full."""
    problems = [problem for key in live.targets.known_keys() for problem in leaks(live.run, key)]
    for name, key in live.given.items():
        problems += leaks(live.run, key, f"the secret of {name}")
    records = job_records(
        live.run, live.suite, live.state, live.backends, live.data, live.scratch.folder("read")
    )
    servers = {name: reached.fingerprint for name, reached in live.targets.reached.items()}
    return write_results(
        live.run, live.suite, records, problems=problems, servers=servers, seconds=round(live.seconds, 3)
    )


def look(run: Path, suite: Suite, state: State) -> SuiteSummary:
    """The summary of what lies in a run's directory, also of one that lives or died; nothing is written.

    Raises:
        VerificationError: its records cannot be read.
    """
    backends = {name: registry.find(name) for name in sorted({job.backend for job in suite.jobs})}
    found = {}
    for job in suite.jobs:
        for name in backends[job.backend].data(job):
            try:
                found[name] = data.find(name).path
            except AssayError:
                continue  # Data that are not here any more; a backend that needs them to read says so.
    with tempfile.TemporaryDirectory() as scratch:
        records = job_records(run, suite, state, backends, found, Path(scratch))
        return summarise_suite(suite, records, problems=state.problems, seconds=state.seconds)


def job_records(
    run: Path,
    suite: Suite,
    state: State,
    backends: Mapping[str, Backend],
    local: Mapping[str, Path],
    scratch: Path,
    known: Mapping[str, JobRecord] | None = None,
) -> list[JobRecord]:
    """A record of every job of the suite, in its order; rows are read while they are taken.

    Args:
        run: The run directory.
        suite: The suite.
        state: Where each job stands.
        backends: By name.
        local: Directories of data by name.
        scratch: A private folder.
        known: Jobs whose recorded rows are taken for what they are; None for those that the run recorded.
    """
    before = recorded(run) if known is None else known
    return [
        _record(run, suite, job, state.job(job.id), backends[job.backend], local, scratch, before)
        for job in suite.jobs
    ]


def _record(
    run: Path,
    suite: Suite,
    job: Job,
    state: JobState,
    backend: Backend,
    local: Mapping[str, Path],
    scratch: Path,
    before: Mapping[str, JobRecord],
) -> JobRecord:
    target = suite.target(job)
    folder = attempt_folder(job.id, state.attempt)
    known = before.get(job.id)
    if known is not None and folder in known.artefacts and (state.settled or known.retained is not None):
        return known
    spent = state.spent.model_dump(exclude={"uncounted"})
    effort = Effort(seconds=state.seconds, attempts=state.attempt, **spent)
    planned = backend.plan(job, target).total
    cancelled = state.phase in ("cancelled", "queued", "paused", "running") and state.budget is None
    if state.attempt == 0 or not (run / folder).is_dir():
        return JobRecord(
            job=job,
            planned=planned,
            rows=(),
            primary="",
            problems=state.problems,
            cancelled=cancelled,
            budget=state.budget,
            error=state.error,
            effort=effort,
        )
    artefacts = [folder] + [each for each in (_kept(run, job),) if each is not None]
    try:
        normalised = read(run, suite, job, state, backend, local, scratch)
    except (AssayError, OSError) as error:
        return JobRecord(
            job=job,
            planned=planned,
            rows=(),
            primary="",
            problems=state.problems,
            error=state.error or str(error),
            artefacts=tuple(artefacts),
            effort=effort,
        )
    own = [problem for problem in state.problems if problem not in normalised.problems]
    said = [note for note in state.notes if note not in normalised.notes]
    return JobRecord(
        job=job,
        planned=planned,
        rows=normalised.rows,
        primary=normalised.primary,
        reported=normalised.reported,
        official=normalised.official,
        sampling=normalised.sampling,
        baselines=normalised.baselines,
        problems=(*normalised.problems, *own),
        notes=(*normalised.notes, *said, *_end(state)),
        cancelled=cancelled,
        budget=state.budget,
        error=state.error,
        artefacts=tuple(artefacts),
        effort=effort,
    )


def native_rows(
    run: Path, suite: Suite, state: State, backends: Mapping[str, Backend], scratch: Path
) -> Iterator[Sample]:
    """The rows of all jobs that were begun, read again from the evaluators' own records."""
    for job in suite.jobs:
        of_job = state.job(job.id)
        if (run / attempt_folder(job.id, of_job.attempt)).is_dir():
            yield from read(run, suite, job, of_job, backends[job.backend], {}, scratch).rows


def _kept(run: Path, job: Job) -> str | None:
    path = journal(run, job.id)
    return path.relative_to(run).as_posix() if path.exists() else None


def _end(state: JobState) -> list[str]:
    """What is said of a child that did not end well by itself."""
    ended = state.ended
    if ended is None or ended.why != "exit" or ended.code == 0:
        return []
    said = f": {ended.said}" if ended.said else ""
    return [f"the evaluator ended with exit code {ended.code}{said}"]
