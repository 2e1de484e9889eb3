"""A summary as people read it: Markdown for the run directory, a table for the terminal.

Every score stands beside its counts, its interval and what a constant answer would have scored. What limits
the claim (no isolation, truncation, failures) is above the table, not below it.
"""

from __future__ import annotations

import sys
from typing import TextIO, cast

from rich.console import Console
from rich.table import Table

from assay.console import Diagnostics, printable
from assay.record.summary import FamilyScore, Summary

HEADINGS = (
    "family",
    "n",
    "scored",
    "errors",
    "cut",
    "missing",
    "score",
    "95 % interval",
    "constant",
    "distinct",
)

SHORT_HEADINGS = ("family", "n", "err", "cut", "miss", "score", "95 %", "const", "dist")


def number(value: float | None) -> str:
    """A score to three decimals, "-" when it is not known."""
    return "-" if value is None else f"{value:.3f}"


def interval(family: FamilyScore) -> str:
    """The bounds of a family's interval; exact ones are marked with "*"."""
    if family.low is None or family.high is None:
        return "-"
    mark = "*" if family.interval_method == "clopper-pearson" else ""
    return f"{family.low:.3f} to {family.high:.3f}{mark}"


def score(family: FamilyScore) -> str:
    """The score; as a range where rows failed, since nobody knows what they would have been."""
    low, high = number(family.score), number(family.score_ceiling)
    return low if low == high or family.score is None else f"{low} to {high}"


def cells(family: FamilyScore) -> tuple[str, ...]:
    """One row of the table, in the order of `HEADINGS`."""
    counts = family.counts
    counted = (counts.planned, counts.scored, counts.errored, counts.truncated, counts.missing)
    return (
        family.family,
        *(str(value) for value in counted),
        score(family),
        interval(family),
        number(family.baseline),
        str(family.distinct_answers),
    )


def headlines(summary: Summary) -> list[str]:
    """What must be read before the scores, one sentence each."""
    counts = summary.counts
    server = summary.server or "offers no identity"
    lines = [
        f"{summary.profile}: {summary.description}",
        f"status: {summary.status}; model {summary.model}; server {server} (claimed)",
        f"runtime: {summary.runtime}; egress: {summary.egress}",
        f"{counts.planned} planned = {counts.scored} scored + {counts.errored} errored "
        f"+ {counts.truncated} truncated (scored all the same) + {counts.missing} missing; "
        f"{counts.empty} empty, {counts.duplicates} duplicate question(s)",
    ]
    lines += [f"problem: {problem}" for problem in summary.problems]
    lines += [f"note: {note}" for note in summary.notes]
    lines += [f"errors: {failure.rows} row(s): {failure.error}" for failure in summary.failures]
    return lines


FOOTNOTES = (
    "score: sum of rewards / planned (a failed row counts 0; the range's end counts it 1)",
    "95 % interval: bootstrap over distinct questions; * exact binomial, where all rewards are equal",
    "const: what the best constant answer scores on the same tasks; dist: distinct answers",
)


def show(summary: Summary, stderr: bool) -> None:
    """Print headlines, table and footnotes, to stderr when stdout is wanted for JSON."""
    stream = cast("TextIO", Diagnostics()) if stderr else sys.stdout
    console = Console(file=stream, soft_wrap=True, highlight=False, markup=False)
    # Captured, so that a reader who went away is the command's to notice and not the library's.
    with console.capture() as captured:
        for line in headlines(summary):
            console.print(printable(line))
        console.print()
        console.print(table(summary))
        console.print()
        for line in FOOTNOTES:
            console.print(line)
    stream.write(captured.get())


def table(summary: Summary) -> Table:
    """The families as a terminal table that fits 80 columns (scored = n - err - cut - miss)."""
    grid = Table(*SHORT_HEADINGS, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in grid.columns:
        column.justify = "left" if column is grid.columns[0] else "right"
        column.no_wrap = True
    for family in summary.families:
        name, planned, _, *rest = cells(family)
        grid.add_row(printable(name), planned, *(cell.replace(" to ", "-") for cell in rest))
    return grid


def markdown(summary: Summary) -> str:
    """The whole summary as Markdown."""
    lines = [f"# {summary.profile}", "", *(f"- {line}" for line in headlines(summary)[1:]), ""]
    lines.insert(2, f"{summary.description}\n")
    lines.append("| " + " | ".join(HEADINGS) + " |")
    lines.append("|---" * len(HEADINGS) + "|")
    lines += ["| " + " | ".join(cells(family)) + " |" for family in summary.families]
    return "\n".join([*lines, "", *(f"- {note}" for note in FOOTNOTES)]) + "\n"
