"""`assay compare A B`: two runs beside each other, paired task by task."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from assay.cli import answer, shared
from assay.compare.compare import FLIPS, compare
from assay.compare.comparison import THRESHOLD
from assay.compare.render import markdown, show
from assay.errors import ConfigurationError, VerificationError
from assay.files import write_atomic
from assay.paths import output_file
from assay.view.open import open_run


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "compare", parents=[shared()], help="hold one run against another, task by task"
    )
    parser.add_argument("a", metavar="A", type=Path, help="the run that stood before")
    parser.add_argument("b", metavar="B", type=Path, help="the run that is held against it")
    parser.add_argument(
        "--allow",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="conditions that may differ, by dotted name or pattern (sampling.temperature, 'data.*')",
    )
    parser.add_argument("--fail-on", choices=("worse",), help="exit 5 where B is worse in any benchmark")
    parser.add_argument(
        "--flips",
        metavar="N",
        type=int,
        help=f"list N flips of each benchmark, in JSON with both answers (without: {FLIPS}, without them)",
    )
    parser.add_argument(
        "--mde",
        metavar="DIFFERENCE",
        type=float,
        default=THRESHOLD,
        help="say 'too few samples' where only a larger difference would be shown (default: %(default)s)",
    )
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write it as Markdown too")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; exit 0 with any verdict, 5 where `--fail-on worse` was asked and B is."""
    if arguments.flips is not None and arguments.flips < 0:
        raise ConfigurationError(f"--flips {arguments.flips} is no number of flips", "", "--flips 20")
    if not (math.isfinite(arguments.mde) and arguments.mde > 0):
        raise ConfigurationError(f"--mde {arguments.mde} is no difference of scores", "", "--mde 0.05")
    if arguments.markdown:
        output_file(arguments.markdown, (arguments.a, arguments.b))
    comparison = compare(
        open_run(arguments.a),
        open_run(arguments.b),
        arguments.allow,
        arguments.mde,
        FLIPS if arguments.flips is None else arguments.flips,
        texts=arguments.flips is not None,
    )
    if arguments.markdown:
        write_atomic(arguments.markdown, markdown(comparison).encode("utf-8"))
    show(comparison, stderr=arguments.json)
    failed = arguments.fail_on == "worse" and comparison.verdict == "worse"
    code = VerificationError.exit_code if failed else 0
    if arguments.json:
        answer({"status": "compared", "exit_code": code, **comparison.model_dump(mode="json")})
    return code
