"""`assay report RUN [B] [--output FILE]`: one HTML file that people read, and that needs nothing else."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from assay.cli import answer, shared
from assay.compare.conditions import UnlikeError
from assay.console import printable
from assay.errors import ConfigurationError
from assay.paths import output_file
from assay.report.write import write_report
from assay.view.open import open_run

NAME = "report.html"


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "report",
        parents=[shared()],
        help="write a run, or two, as one HTML file",
        description=(
            "Write one self-contained HTML file: scores with their intervals and counts, distributions, the "
            "timeline, and every sample. With B it holds B against RUN. It needs no network, and shows it."
        ),
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument("other", metavar="B", type=Path, nargs="?", help="a run to hold against it")
    parser.add_argument(
        "--allow",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="conditions that may differ between the two, as of assay compare",
    )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help=f"where to write it (default: {NAME} in RUN, or in B)"
    )
    parser.set_defaults(handler=report)


def report(arguments: argparse.Namespace) -> int:
    """Write the report, say where it is, and return 0."""
    runs = [arguments.run, *([arguments.other] if arguments.other else [])]
    if arguments.allow and len(runs) == 1:
        raise ConfigurationError("--allow is for two runs", "", "assay report RUN B --allow NAME")
    path = place(arguments.output, runs)
    try:
        written = write_report([open_run(run) for run in runs], path, arguments.allow)
    except UnlikeError as error:
        error.next = error.next.replace("assay compare", "assay report", 1)
        raise
    print(f"{printable(str(written.path))}: {written.samples:,} samples, {written.size_bytes:,} bytes")
    if written.cut_at is not None:
        print(f"texts longer than {written.cut_at:,} characters are cut in their middle, and say so")
    if written.comparison is not None:
        print(f"verdict: {written.comparison.verdict}")
    if arguments.json:
        answer(
            {
                "status": "ok",
                "path": str(written.path),
                "size_bytes": written.size_bytes,
                "samples": written.samples,
                "cut_at": written.cut_at,
                "verdict": written.comparison.verdict if written.comparison else None,
            }
        )
    return 0


def place(asked: Path | None, runs: list[Path]) -> Path:
    """Where the report goes: in a run only under the one name that its manifest leaves out."""
    if asked is None:
        if runs[-1].is_dir() and not os.access(runs[-1], os.W_OK):
            raise ConfigurationError(
                f"{runs[-1]} cannot be written into", "", "name a file elsewhere: --output FILE"
            )
        return (runs[-1] / NAME).absolute()
    return output_file(asked, runs, NAME)
