"""`assay import FILE`: a published run back into a directory that can be read, compared and audited."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.cli import answer, shared
from assay.console import say
from assay.export.contents import load
from assay.export.unpack import unpack
from assay.paths import RUNS

IMPORTED = RUNS / "imported"


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "import", parents=[shared()], help="unpack what export wrote, held to its list"
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="what assay export wrote")
    parser.add_argument(
        "--into", type=Path, default=IMPORTED, metavar="DIR", help="where to (default: eval/runs/imported)"
    )
    parser.set_defaults(handler=unpacked)


def unpacked(arguments: argparse.Namespace) -> int:
    """Unpack it and say where it is."""
    run = unpack(arguments.file, arguments.into)
    contents = load(run)
    say(f"{run}: the published form of a {contents.kind}'s run (next: assay audit {run} --key PUB)")
    if arguments.json:
        answer({"run_dir": str(run.resolve()), "kind": contents.kind, "exit_code": 0})
    return 0
