"""A summary as people read it: Markdown for the run directory, a table for the terminal.

Every score stands beside its counts, its interval and what a constant answer would have scored. What limits
the claim (no isolation, truncation, failures) is above the table, not below it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO, cast

from rich.console import Console
from rich.table import Table

from assay.console import Diagnostics, printable
from assay.pinset import PRODUCTION
from assay.record.asked import words
from assay.record.repeats import Repeats
from assay.record.scores import FamilyScore
from assay.record.summary import EntryFacts, Summary
from assay.record.tally import Counts

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

MARKUP = frozenset("\\`<[|")
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
    server = f"{summary.server} (claimed)" if summary.server else "offers no identity"
    lines = [
        f"{summary.profile}: {summary.description}",
        *pins_said(summary.pins),
        f"status: {summary.status}; model {summary.model}; server {server}",
        f"runtime: {summary.runtime}; egress: {summary.egress}",
        f"{counts.planned} planned = {counts.scored} scored + {counts.errored} errored "
        f"+ {counts.truncated} truncated (scored all the same) + {counts.missing} missing; "
        f"{emptiness(counts)}, {counts.duplicates} duplicate question(s)",
        truncation(counts),
    ]
    for entry in summary.entries:
        lines.append(asked(entry))
        lines += [
            f"{entry.entry}: {said}"
            for family in summary.families
            if family.entry == entry.entry and family.repeats is not None
            for said in repeated(family, family.repeats)
        ]
    lines += [f"problem: {problem}" for problem in summary.problems]
    lines += [f"note: {note}" for note in summary.notes]
    lines += [f"errors: {failure.rows} row(s): {failure.error}" for failure in summary.failures]
    return lines


def pins_said(pins: str) -> list[str]:
    """What must be said when a run used other pins than production's; nothing for those."""
    if pins == PRODUCTION:
        return []
    return [f"PINS: {pins}. Nothing here is the pinned evaluation that the profile's name stands for"]


def emptiness(counts: Counts) -> str:
    """How many answers show nothing, those after thinking told apart, and how many could not be read."""
    thought = f" ({counts.thought_only} of them after thinking)" if counts.thought_only else ""
    unparsed = f", {counts.unparsed} unparsed" if counts.unparsed else ""
    return f"{counts.empty} empty{thought}{unparsed}"


def truncation(counts: Counts) -> str:
    """How many answers a limit cut, with their share."""
    return f"truncated: {_share(counts)}"


def asked(entry: EntryFacts) -> str:
    """What was asked in an entry, how, and how much of it came back."""
    found = f"{entry.tasks_found} of {entry.tasks} tasks in the records"
    seeds = f", seeds {entry.seeds[0]} to {entry.seeds[-1]}" if entry.seeds else ""
    rollouts = f"{entry.rollouts} rollout(s) each{seeds}"
    how = words(entry.sampling, entry.limits) or "the server's own sampling"
    return f"{entry.entry}: {found}, {rollouts}; truncated {_share(entry.counts)}; asked with {how}"


def _share(counts: Counts) -> str:
    rate = counts.truncated_rate
    share = "" if rate is None else f" ({rate:.1%})"
    return f"{counts.truncated} of {counts.answered} answers{share}"


def repeated(family: FamilyScore, repeats: Repeats) -> list[str]:
    """What the several rollouts of a family's task are: see `repeats_said`."""
    return repeats_said(f"{family.family}: " if family.family != family.entry else "", repeats)


def repeats_said(of: str, repeats: Repeats) -> list[str]:
    """What the several rollouts of a task are, and what follows from them: plain sentences.

    Args:
        of: What each sentence begins with.
        repeats: Of all tasks.
    """
    if repeats.distinct_min is None:
        return [f"{of}no rollout was answered"]
    lines = [
        f"{of}distinct answers a task: {repeats.distinct_min} least, {repeats.distinct_mean:g} in the mean, "
        f"{repeats.distinct_max} most, of {repeats.rollouts} rollouts"
    ]
    if repeats.one_answer:
        lines.append(
            f"{of}the {repeats.rollouts} rollouts of each task are one answer {repeats.rollouts} times: "
            "they are no more evidence than one rollout"
        )
    elif not repeats.sampled:
        lines.append(
            f"{of}the rollouts differ though nothing in the sampling makes them: the server is not "
            "deterministic, and they are no samples"
        )
    if repeats.mean_at_k is not None:
        at = [f"mean@{repeats.rollouts} {number(repeats.mean_at_k)}"]
        at += [f"pass@{k} {number(value)}" for k, value in repeats.pass_at_k.items()]
        lines.append(of + ", ".join(at))
    return lines


FOOTNOTES = (
    "score: sum of rewards / planned (a failed row counts 0; the range's end counts it 1)",
    "95 % interval: bootstrap over distinct questions, so that a repeated answer narrows nothing; "
    "* exact binomial, where all rewards are equal",
    "const: what the best constant answer scores on the same tasks; dist: distinct answers",
)


def show(summary: Summary, stderr: bool) -> None:
    """Print headlines, table and footnotes, to stderr when stdout is wanted for JSON."""
    present(headlines(summary), table(summary), FOOTNOTES, stderr)


def present(above: Iterable[str], grid: Table, below: Iterable[str], stderr: bool) -> None:
    """Print lines, a table and more lines, to stderr when stdout is wanted for JSON."""
    stream = cast("TextIO", Diagnostics()) if stderr else sys.stdout
    console = Console(file=stream, soft_wrap=True, highlight=False, markup=False)
    # Captured, so that a reader who went away is the command's to notice and not the library's.
    with console.capture() as captured:
        for line in above:
            console.print(printable(line))
        console.print()
        console.print(grid)
        console.print()
        for line in below:
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
    lines = [f"# {summary.profile}", "", *(f"- {plain(line)}" for line in headlines(summary)[1:]), ""]
    lines.insert(2, f"{plain(summary.description)}\n")
    lines.append("| " + " | ".join(HEADINGS) + " |")
    lines.append("|---" * len(HEADINGS) + "|")
    lines += ["| " + " | ".join(map(plain, cells(family))) + " |" for family in summary.families]
    return "\n".join([*lines, "", *(f"- {note}" for note in FOOTNOTES)]) + "\n"


def plain(text: str) -> str:
    """A text of anybody's as one line of Markdown that shows it: it makes no link, tag, cell or heading."""
    shown = printable(" ".join(text.split()))
    return "".join(f"\\{character}" if character in MARKUP else character for character in shown)
