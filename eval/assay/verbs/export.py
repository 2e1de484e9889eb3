"""`assay export RUN`: write the small publishable form of a run into one file."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from assay.cli import answer, shared
from assay.console import say
from assay.digest import sha256_file
from assay.export.write import export as write
from assay.paths import output_file


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "export",
        parents=[shared()],
        help="write a run's publishable form: figures, no texts",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="where to (default: RUN.export.zip, beside the run)"
    )
    parser.set_defaults(handler=export)


def export(arguments: argparse.Namespace) -> int:
    """Write the file and say what it holds."""
    run = Path(os.path.realpath(arguments.run))
    output: Path = arguments.output or run.with_name(f"{run.name}.export.zip")
    output_file(output, [run])
    contents = write(arguments.run, output)
    digest = sha256_file(output)
    said = f"{len(contents.kept)} files as they were, {len(contents.derived)} without their texts"
    say(f"{output}: {said}, {len(contents.omitted)} left out; SHA-256 {digest}")
    if arguments.json:
        answer(
            {
                "run_dir": str(run),
                "output": str(output),
                "sha256": digest,
                "size_bytes": output.stat().st_size,
                "kept": len(contents.kept),
                "derived": len(contents.derived),
                "omitted": len(contents.omitted),
                "exit_code": 0,
            }
        )
    return 0
