"""From jobs that have ended to `samples.jsonl`, `summary.json` and `summary.md` of a suite's run, and back.

Rows pass once from the backends' readers into the file, and are counted on their way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from assay.errors import VerificationError
from assay.files import OLDER, other_form, read_json, replacing, write_atomic, write_json_atomic
from assay.record.dataset_result import DatasetResult, JobRecord
from assay.record.job_result import result_of
from assay.record.results import MARKDOWN, SAMPLES, SUMMARY
from assay.record.retention import Marks, retain
from assay.record.sample import Baseline, Sample
from assay.record.suite_render import markdown
from assay.record.suite_summary import SCHEMA, SuiteSummary, summary_of
from assay.suite.job import Job
from assay.suite.suite import Suite

RESOLVED = "resolved.json"


def write_results(
    run: Path,
    suite: Suite,
    jobs: Sequence[JobRecord],
    problems: Sequence[str] = (),
    notes: Sequence[str] = (),
    servers: Mapping[str, str | None] | None = None,
    seconds: float | None = None,
) -> SuiteSummary:
    """Write rows and summary, then keep of the native records what the suite's retention says.

    Args:
        run: The run directory.
        suite: What was asked.
        jobs: Every job of it, in its order; the rows are read once.
        problems: Faults of the run itself; any fails it.
        notes: What else a reader should know.
        servers: The fingerprint that each target claims, by the target's name.
        seconds: What the run took.

    Raises:
        RunError: the disk is full; what stood there before still does.
    """
    results = []
    marks = {record.job.id: Marks(suite.running.retention) for record in jobs}
    with replacing(run / SAMPLES) as write:
        for record in jobs:
            mark = marks[record.job.id]

            def take(row: Sample, mark: Marks = mark) -> None:
                mark.take(row)
                write(row.model_dump_json().encode("utf-8") + b"\n")

            results.append(result_of(suite, record, take))
    summary = summary_of(suite, results, problems, notes, servers, seconds)
    # Written before anything is removed: whoever goes on after a crash finds every removed record counted.
    _write_summary(run, summary)
    kept = [
        result.model_copy(update={"retained": retain(run, result, marks[result.job])}) for result in results
    ]
    if kept != results:
        summary = summary.model_copy(update={"jobs": tuple(kept)})
        _write_summary(run, summary)
    return summary


def summarise_suite(
    suite: Suite,
    jobs: Sequence[JobRecord],
    problems: Sequence[str] = (),
    notes: Sequence[str] = (),
    servers: Mapping[str, str | None] | None = None,
    seconds: float | None = None,
) -> SuiteSummary:
    """The summary that `write_results` would write, of a run that is live or died; nothing is written."""
    results = [result_of(suite, record, _drop) for record in jobs]
    return summary_of(suite, results, problems, notes, servers, seconds)


def recompute(run: Path) -> SuiteSummary:
    """The summary computed again, from the recorded rows and from what the recorded one knew besides.

    Raises:
        VerificationError: there is none, or it cannot be read.
    """
    suite, summary = _load_suite(run), load_suite_summary(run)
    again = summarise_suite(
        suite,
        list(_records(run, suite, summary).values()),
        summary.problems,
        summary.notes,
        {target.name: target.server for target in summary.targets},
        summary.seconds,
    )
    # What was not removed is not told by any row.
    kept = {result.job: result.retained for result in summary.jobs}
    jobs = tuple(result.model_copy(update={"retained": kept[result.job]}) for result in again.jobs)
    return again.model_copy(update={"jobs": jobs})


def recorded(run: Path) -> dict[str, JobRecord]:
    """The jobs of a run as it recorded them, rows included; empty where it recorded none yet.

    A resume takes those that are done from here: their native records may be gone.

    Raises:
        VerificationError: what is there cannot be read.
    """
    if not (run / SUMMARY).is_file() or not (run / SAMPLES).is_file():
        return {}
    return _records(run, _load_suite(run), load_suite_summary(run))


def load_suite_summary(run: Path) -> SuiteSummary:
    """The recorded summary; VerificationError when there is none, it is of another form or cannot be read."""
    path = run / SUMMARY
    try:
        value = read_json(path)
        if other := other_form(value, SCHEMA):
            raise VerificationError(f"{path} is of the form {other}", f"this version reads {SCHEMA}", OLDER)
        return SuiteSummary.model_validate(value)
    except FileNotFoundError:
        raise VerificationError(
            f"{run} has no {SUMMARY}", "the run did not come to its end", f"assay status {run}"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise VerificationError(f"{path} cannot be read", str(error).splitlines()[0]) from error


@dataclass(frozen=True)
class RecordedRows:
    """The rows of one job in `samples.jsonl`; they may be read any number of times.

    Attributes:
        path: The file as it stands when reading begins.
        job: The job's id.
    """

    path: Path
    job: str

    def __iter__(self) -> Iterator[Sample]:
        """Each row in turn.

        Raises:
            VerificationError: a line is no row.
        """
        # Only this job's lines are parsed: the first field is the job's id.
        ours = b'{"entry":' + _quoted(self.job) + b","
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.startswith(ours):
                    continue
                try:
                    yield Sample.model_validate_json(line)
                except ValidationError as error:
                    raise VerificationError(
                        f"{self.path} line {number} is no row", str(error).splitlines()[0]
                    ) from error


def _records(run: Path, suite: Suite, summary: SuiteSummary) -> dict[str, JobRecord]:
    jobs = {job.id: job for job in suite.jobs}
    for result in summary.jobs:
        if result.job not in jobs:
            raise VerificationError(
                f"{run / SUMMARY} tells of the job {result.job!r}", f"{RESOLVED} has none of that name"
            )
    return {result.job: _record(run, jobs[result.job], result) for result in summary.jobs}


def _record(run: Path, job: Job, result: DatasetResult) -> JobRecord:
    return JobRecord(
        job=job,
        planned=result.planned_before,
        rows=RecordedRows(run / SAMPLES, job.id),
        primary=result.primary,
        reported=result.reported,
        official=result.official,
        sampling=None if result.sampling_of == "job" else result.sampling,
        baselines={
            family.family: Baseline(answer=family.baseline_answer or "", score=family.baseline)
            for family in result.families
            if family.baseline is not None
        },
        problems=result.problems,
        notes=result.notes,
        cancelled=result.status == "cancelled",
        budget=result.budget,
        error=result.error,
        artefacts=result.artefacts,
        effort=result.effort,
        retained=result.retained if result.retained.acted else None,
    )


def _load_suite(run: Path) -> Suite:
    path = run / RESOLVED
    try:
        return Suite.model_validate(read_json(path))
    except (OSError, ValueError, RecursionError) as error:
        raise VerificationError(f"{path} cannot be read", str(error).splitlines()[0]) from error


def _write_summary(run: Path, summary: SuiteSummary) -> None:
    write_json_atomic(run / SUMMARY, summary.model_dump(mode="json"))
    write_atomic(run / MARKDOWN, markdown(summary).encode("utf-8"))


def _quoted(text: str) -> bytes:
    return f'"{text}"'.encode()


def _drop(_: Sample) -> None:
    """A row that is only counted."""
