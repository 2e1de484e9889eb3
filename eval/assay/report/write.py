"""A report of one run, or of two beside each other: read through their views, written as one file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import __version__
from assay.compare.compare import compare
from assay.compare.comparison import Comparison
from assay.errors import ConfigurationError
from assay.files import replacing
from assay.report import shown
from assay.report.chunks import Chunks, packed
from assay.report.columns import Columns
from assay.report.page import Data, render
from assay.view.view import Benchmark, View

LIMIT_BYTES = 40_000_000
# Of the page beside the exchanges: itself, and of its index so much for each row.
ITSELF_BYTES = 1_000_000
INDEX_BYTES = 160
MOST_ROWS = 100_000
# Of each benchmark, on paper: on a screen the list has every one.
FLIPS = 12


@dataclass(frozen=True)
class Written:
    """A report that was written.

    Attributes:
        path: The file.
        size_bytes: Of it.
        samples: Rows that it holds, of all its runs.
        cut_at: Characters at which long texts were cut in their middle; None where every text is whole.
        comparison: Of its two runs; None where it shows one.
    """

    path: Path
    size_bytes: int
    samples: int
    cut_at: int | None
    comparison: Comparison | None


def write_report(views: Sequence[View], path: Path, allow: Sequence[str] = ()) -> Written:
    """Write the report of one run, or of A and B, and replace what stood there.

    Args:
        views: One run, or two: B is held against A.
        path: The file.
        allow: Conditions that may differ between the two (see `assay.compare`).

    Raises:
        UnlikeError: the two differ in what nobody accepted.
        ConfigurationError: they have nothing in common, or are too long for a page.
        PrerequisiteError: the chart library is not here.
        VerificationError: a run's rows cannot be read, or the library is not the pinned one.
        RunError: the disk is full.
    """
    comparison = compare(views[0], views[1], allow, flips=FLIPS) if len(views) > 1 else None
    benchmarks = [view.benchmarks() for view in views]
    table = shown.rows(benchmarks[0], benchmarks[1] if comparison else (), comparison)
    numbers = {row.name: row.number for row in table}
    sides = [
        shown.side(letter, view, found) for letter, view, found in zip("ab", views, benchmarks, strict=False)
    ]
    rows = sum(_counted(view) for view in views)
    with ExitStack() as stack:
        chunks = [stack.enter_context(Chunks()) for _ in views]
        columns = [
            _read(view, found, numbers, into)
            for view, found, into in zip(views, benchmarks, chunks, strict=True)
        ]
        room = LIMIT_BYTES - ITSELF_BYTES - INDEX_BYTES * rows
        sizes = [each.size for each in chunks]
        for each, size in zip(chunks, sizes, strict=True):
            each.fit(room * size // max(1, sum(sizes)))
        cuts = [each.cut_at for each in chunks if each.cut_at is not None]
        context = {
            "version": __version__,
            "sides": sides,
            "table": table,
            "comparison": comparison,
            "verdict": shown.verdict(sides[0], comparison),
            "confidence": benchmarks[0][0].confidence if benchmarks[0] else None,
            "cut_at": min(cuts, default=None),
            "rows": rows,
            "told": shown.told(table),
            "accepted": shown.accepted(comparison),
        }
        data = _data(columns, chunks, [row.name for row in table])
        with replacing(path) as write:
            size = 0
            for piece in render(context, shown.rules(table), data):
                encoded = piece.encode("utf-8", "backslashreplace")
                write(encoded)
                size += len(encoded)
    return Written(path, size, rows, min(cuts, default=None), comparison)


def _counted(view: View) -> int:
    rows = sum(1 for _ in view.samples())
    if rows > MOST_ROWS:
        raise ConfigurationError(
            f"{view.run} has {rows:,} samples, and a page holds at most {MOST_ROWS:,}",
            "a browser would not show more in a useful time",
            "assay compare and assay summarize take any number",
        )
    return rows


def _read(view: View, benchmarks: Sequence[Benchmark], numbers: dict[str, int], chunks: Chunks) -> Columns:
    columns = Columns({(found.entry, found.family): numbers[found.name] for found in benchmarks})
    for sample, exchange in view.exchanges():
        columns.add(sample, exchange, chunks.add(sample, exchange))
    return columns


def _data(columns: Sequence[Columns], chunks: Sequence[Chunks], names: Sequence[str]) -> Iterator[Data]:
    """The index of rows, then every piece, in the order in which the page asks for them."""
    value = {"benchmarks": names, "sides": [found.value() for found in columns], "pairs": _pairs(columns)}
    yield Data("index", [_letters(value)])
    for letter, found in zip("ab", chunks, strict=False):
        for number, text in enumerate(found.encoded()):
            yield Data(f"{letter}-{number}", [text])


def _pairs(columns: Sequence[Columns]) -> list[list[int]] | None:
    """Rows of A and of B that belong together, by number; -1 where one side has none."""
    if len(columns) < 2:
        return None
    ours, theirs = (found.rows for found in columns)
    both = [[number, theirs.get(key, -1)] for key, number in ours.items()]
    return both + [[-1, number] for key, number in theirs.items() if key not in ours]


def _letters(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(packed(text)).decode("ascii")
