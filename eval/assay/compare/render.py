"""A comparison as people read it: a table for the terminal with what is noteworthy below it, and Markdown."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping

from rich.table import Table

from assay.compare.comparison import Compared, Comparison, Verdict
from assay.compare.words import (
    bounds,
    flipped,
    headlines,
    lengths,
    noteworthy,
    reasons,
    same_output,
    speeds,
)
from assay.console import printable
from assay.record.render import number, plain, present

HEADINGS = (
    *("benchmark", "pairs", "A", "B", "B - A", "95 % interval", "p", "MDE", "gains", "losses", "effect"),
    "verdict",
)
SHORT_HEADINGS = ("benchmark", "n", "A", "B", "B-A", "95 %", "p", "MDE", "+/-", "verdict")
SHORT: Mapping[Verdict, str] = {
    "better": "better",
    "worse": "worse",
    "no difference shown": "none shown",
    "too few samples": "too few",
}

# Characters of a benchmark's name in a line, where the terminal is too narrow for more.
FEWEST_OF_A_NAME = 8

FOOTNOTES = (
    "A, B: sum of rewards / pairs (a failed row counts 0); B - A with its 95 % interval, over questions",
    "p: exact McNemar over questions (graded or repeated rewards: sign-flip permutation), adjusted over the "
    "benchmarks (Holm)",
    "MDE: the smallest difference that would be shown with power 0.8; +/-: questions that gained and lost",
)


def show(comparison: Comparison, stderr: bool) -> None:
    """Print headlines, table and what is noteworthy, to stderr when stdout is wanted for JSON."""
    present(headlines(comparison), table(comparison), map(printable, _below(comparison)), stderr)


def table(comparison: Comparison) -> Table:
    """The benchmarks as a terminal table: a long name is folded, a number never cut."""
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    shared = _shared(comparison)
    rows = [short_cells(found) for found in comparison.benchmarks]
    first = f"{printable(shared)}…" if shared else SHORT_HEADINGS[0]
    names = [printable(found.name.removeprefix(shared)) for found in comparison.benchmarks]
    widths = [max(map(len, column)) for column in zip(SHORT_HEADINGS[1:], *rows, strict=True)]
    left = shutil.get_terminal_size().columns - sum(widths) - len(widths)
    width = min(max(map(len, (first, *names))), max(left, FEWEST_OF_A_NAME))
    # A table that knows its width is never made narrower by cutting what cannot be folded.
    grid.width = width + sum(widths) + len(widths)
    grid.add_column(first, overflow="fold", width=width)
    for heading, width in zip(SHORT_HEADINGS[1:], widths, strict=True):
        last = heading == SHORT_HEADINGS[-1]
        grid.add_column(heading, justify="left" if last else "right", no_wrap=True, width=width)
    for name, row in zip(names, rows, strict=True):
        grid.add_row(name, *row)
    return grid


def markdown(comparison: Comparison) -> str:
    """The whole comparison as Markdown."""
    head, *lines = headlines(comparison)
    text = [f"# {plain(head)}", "", *(f"- {plain(line)}" for line in lines), ""]
    text += ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
    text += ["| " + " | ".join(map(plain, cells(found))) + " |" for found in comparison.benchmarks]
    text += ["", *(f"- {plain(line)}" for line in _below(comparison, whole=True))]
    return "\n".join([*text, "", *(f"- {note}" for note in FOOTNOTES)]) + "\n"


def cells(found: Compared) -> tuple[str, ...]:
    """One row of the table, in the order of `HEADINGS`."""
    return (
        found.name,
        str(found.pairs),
        number(found.a_score),
        number(found.b_score),
        f"{found.all.difference:+.3f}",
        bounds(found.all.bounds, "+"),
        f"{found.p_holm:.2g}",
        number(found.mde),
        str(found.signs.gains),
        str(found.signs.losses),
        "-" if found.effect is None else f"{found.effect:+.2f}",
        found.verdict,
    )


def short_cells(found: Compared) -> tuple[str, ...]:
    """One row of the terminal's table but its name, in the order of `SHORT_HEADINGS`."""
    _, pairs, a, b, difference, interval, p, mde, gains, losses, _, _ = cells(found)
    return pairs, a, b, difference, interval, p, mde, f"{gains}/{losses}", SHORT[found.verdict]


def _below(comparison: Comparison, whole: bool = False) -> Iterator[str]:
    benchmarks, shared = comparison.benchmarks, _shared(comparison)
    yield from reasons(benchmarks)
    yield from same_output(benchmarks)
    for found in benchmarks:
        said = list(noteworthy(found))
        if whole and found.tokens is not None and lengths(found) not in said:
            said.append(lengths(found))
        yield from (f"{found.name}: {line}" for line in said)
    yield from speeds(benchmarks, [found.name.removeprefix(shared) for found in benchmarks])
    for found in benchmarks:
        yield from flipped(found)
    if not whole:
        yield from FOOTNOTES


def _shared(comparison: Comparison) -> str:
    """What the names of all benchmarks begin with, up to a slash; empty where that is nothing."""
    names = [found.name for found in comparison.benchmarks]
    before = {name.rpartition("/")[0] for name in names}
    return f"{before.pop()}/" if len(names) > 1 and len(before) == 1 and "" not in before else ""
