"""A suite's summary as people read it: one line a job, and never one over several of them.

What limits a claim stands above the table: failures, cuts, silence, records that are not whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from assay.console import printable
from assay.record.asked import words
from assay.record.dataset_result import DatasetResult
from assay.record.render import number, pins_said, plain, present, repeats_said
from assay.record.scores import FamilyScore
from assay.record.statistics import Bounds
from assay.record.suite_summary import SuiteSummary
from assay.record.tally import Zeros

HEADINGS = (
    "job",
    "status",
    "planned",
    "completed",
    "failed",
    "cut",
    "missing",
    "empty",
    "unparsed",
    "metric",
    "score",
    "95 % interval",
    "clustered",
    "Wilson",
)
SHORT_HEADINGS = ("job", "n", "done", "fail", "cut", "empty", "metric", "score", "95 %")
FAMILY_HEADINGS = (
    "job",
    "subset",
    "planned",
    "completed",
    "failed",
    "cut",
    "missing",
    "score",
    "95 % interval",
)
WHY: tuple[tuple[str, str], ...] = (
    ("truncated", "cut by a limit"),
    ("thought_only", "silent after thinking"),
    ("empty", "silent"),
    ("unparsed", "unparsed"),
    ("wrong", "wrong"),
)
FOOTNOTES = (
    "score: sum of the primary metric / planned (a row without a score counts 0; the end of a range: 1)",
    "95 % interval: bootstrap over distinct questions, so that a repeated answer narrows nothing; "
    "* exact binomial, where all rewards are equal; ~ clustered normal, where there are too many to resample",
    "there is no score over several jobs: benchmarks have no common unit",
)


def headlines(summary: SuiteSummary) -> list[str]:
    """What must be read before the scores, one sentence each."""
    lines = [f"{summary.suite}: {summary.description}", *pins_said(summary.pins), f"status: {summary.status}"]
    for target in summary.targets:
        server = f"{target.server} (claimed)" if target.server else "offers no identity"
        asked = f"model {target.model}; server {server}" if target.protocol != "none" else "nobody is asked"
        lines.append(f"target {target.name}: {asked}")
    for job in summary.jobs:
        lines += [f"{job.job}: {said}" for said in told(job)]
    lines += [f"problem: {problem}" for problem in summary.problems]
    return [*lines, *(f"note: {note}" for note in summary.notes)]


def told(job: DatasetResult) -> Iterator[str]:
    """What must be said of one job, one sentence each."""
    counts = job.counts
    yield f"{job.status}; {job.dataset} by {job.backend} at {job.target}, asked with {_asked(job)}"
    yield (
        f"{counts.planned} planned = {counts.completed} completed ({counts.scored} whole, "
        f"{counts.truncated} cut and scored all the same) + {counts.failed} failed + {counts.missing} missing"
    )
    if zeros := _zeros(job.zeros):
        yield f"scored nothing: {zeros}"
    if job.counts.duplicates:
        yield f"{job.counts.duplicates} duplicate question(s)"
    if job.repeats is not None:
        yield from repeats_said("", job.repeats)
    if job.budget:
        yield f"its budget of {job.budget.replace('_', ' ')} was reached"
    if job.reported:
        figures = ", ".join(f"{name} {value:g}" for name, value in job.reported.items())
        standing = "official" if job.official else "of what was asked, not the official score"
        yield f"as the evaluator itself reports it ({standing}): {figures}"
    if job.error:
        yield f"could not be run: {job.error}"
    yield from (f"problem: {problem}" for problem in job.problems)
    yield from (f"note: {note}" for note in job.notes)
    yield from (f"errors: {failure.rows} row(s): {failure.error}" for failure in job.failures)
    if job.retained.acted:
        yield (
            f"retention {job.retained.policy}: {job.retained.removed_files} file(s) of its records removed, "
            f"{job.retained.kept_rows} row(s) kept"
        )


def cells(job: DatasetResult) -> tuple[str, ...]:
    """One row of the table, in the order of `HEADINGS`."""
    counts = job.counts
    counted = (
        counts.planned,
        counts.completed,
        counts.failed,
        counts.truncated,
        counts.missing,
        counts.empty,
    )
    return (
        job.job,
        job.status,
        *(str(value) for value in counted),
        "-" if counts.unparsed is None else str(counts.unparsed),
        job.primary or "reward",
        score(job),
        interval(job),
        _bounds(job.clustered),
        _bounds(job.wilson),
    )


def score(job: DatasetResult | FamilyScore) -> str:
    """The score; as a range where rows failed, since nobody knows what they would have been."""
    low, high = number(job.score), number(job.score_ceiling)
    return low if low == high or job.score is None else f"{low} to {high}"


def interval(job: DatasetResult | FamilyScore) -> str:
    """The bounds of the score's interval, marked where they are no bootstrap's."""
    if job.low is None or job.high is None:
        return "-"
    mark = {"clopper-pearson": "*", "clustered-normal": "~"}.get(job.interval_method, "")
    return f"{job.low:.3f} to {job.high:.3f}{mark}"


def show(summary: SuiteSummary, stderr: bool) -> None:
    """Print headlines, table and footnotes, to stderr when stdout is wanted for JSON."""
    present(headlines(summary), table(summary), FOOTNOTES, stderr)


def table(summary: SuiteSummary) -> Table:
    """The jobs as a terminal table that fits 80 columns where their names do."""
    grid = Table(*SHORT_HEADINGS, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in grid.columns:
        column.justify = "left" if column.header in ("job", "metric") else "right"
        column.no_wrap = True
    for job in summary.jobs:
        counts = job.counts
        counted = (counts.planned, counts.completed, counts.failed, counts.truncated, counts.empty)
        found = (job.primary or "reward", score(job), interval(job))
        shown = [printable(job.job), *map(str, counted), *(printable(cell) for cell in found)]
        grid.add_row(*(cell.replace(" to ", "-") for cell in shown))
    return grid


def markdown(summary: SuiteSummary) -> str:
    """The whole summary as Markdown."""
    lines = [f"# {plain(summary.suite)}", "", plain(summary.description), ""]
    lines += [*(f"- {plain(line)}" for line in headlines(summary)[1:]), ""]
    lines += _rows(HEADINGS, (cells(job) for job in summary.jobs))
    subsets = [(job, family) for job in summary.jobs if len(job.families) > 1 for family in job.families]
    if subsets:
        lines += ["", *_rows(FAMILY_HEADINGS, (_family(job, family) for job, family in subsets))]
    return "\n".join([*lines, "", *(f"- {note}" for note in FOOTNOTES)]) + "\n"


def _rows(headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    return [*lines, *("| " + " | ".join(map(plain, row)) + " |" for row in rows)]


def _family(job: DatasetResult, family: FamilyScore) -> tuple[str, ...]:
    counts = family.counts
    counted = (counts.planned, counts.answered, counts.errored, counts.truncated, counts.missing)
    return (job.job, family.family, *map(str, counted), score(family), interval(family))


def _asked(job: DatasetResult) -> str:
    return words(job.sampling, {}) or "the server's own sampling"


def _zeros(zeros: Zeros) -> str:
    return ", ".join(f"{count} {said}" for name, said in WHY if (count := getattr(zeros, name)))


def _bounds(bounds: Bounds | None) -> str:
    return "-" if bounds is None else f"{bounds.low:.3f} to {bounds.high:.3f}"
