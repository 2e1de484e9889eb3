"""`assay validate PROFILE | --suite FILE[:LIST]`: is it written as it must be, and is what it needs here?"""

from __future__ import annotations

import argparse
import os

from assay.cli import answer, shared
from assay.suite.check import check_runtime, check_suite
from assay.suite.choice import add_choice, chosen


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "validate", parents=[shared()], help="check a suite or profile, and ask nothing"
    )
    add_choice(parser)
    parser.set_defaults(handler=validate)


def validate(arguments: argparse.Namespace) -> int:
    """Check, and say what is valid."""
    asked = chosen(arguments)
    suite = asked.suite
    check_suite(suite)
    if arguments.check_runtime:
        check_runtime(suite, os.environ)
    found = "valid, and all that it needs is here" if arguments.check_runtime else "valid"
    print(f"{suite.name}: {found}; {len(suite.jobs)} job(s), {len(suite.targets)} target(s)")
    if arguments.json:
        answer(
            {
                "status": "valid",
                "suite": suite.name,
                "suite_digest": suite.digest,
                "pins": suite.pins,
                "jobs": [job.id for job in suite.jobs],
                "targets": [target.name for target in suite.targets],
                "runtime_checked": bool(arguments.check_runtime),
            }
        )
    return 0
