"""`assay plan PROFILE | --suite FILE[:LIST]`: what would be asked of whom, and how much."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from assay.cli import answer, shared
from assay.console import printable
from assay.pinset import PRODUCTION
from assay.suite.check import Planned, check_runtime, check_suite, plan_suite
from assay.suite.choice import add_choice, chosen
from assay.suite.suite import Suite

WIDE = 240
HEADINGS = ("job", "backend", "dataset", "target", "slots", "expected")


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "plan", parents=[shared()], help="show what a suite or profile would ask, and ask nothing"
    )
    add_choice(parser)
    parser.set_defaults(handler=plan)


def plan(arguments: argparse.Namespace) -> int:
    """Print the jobs, how much each is expected to ask, and what to know of it."""
    suite = chosen(arguments).suite
    check_suite(suite)
    if arguments.check_runtime:
        check_runtime(suite, os.environ)
    planned = plan_suite(suite)
    show(suite, planned)
    if arguments.json:
        answer(
            {
                "status": "planned",
                "suite": suite.name,
                "suite_digest": suite.digest,
                "pins": suite.pins,
                "max_parallel_jobs": suite.running.max_parallel_jobs,
                "expected": total(planned),
                "jobs": [described(item) for item in planned],
            }
        )
    return 0


def total(planned: Sequence[Planned]) -> int | None:
    """Samples over all jobs; None where one of them cannot tell."""
    counts = [item.expected.total for item in planned]
    return None if None in counts else sum(count for count in counts if count is not None)


def known(count: int | None) -> str:
    """A number of samples; "?" where nobody knows it yet."""
    return "?" if count is None else str(count)


def described(item: Planned) -> dict[str, object]:
    """A job's plan as JSON."""
    job, expected = item.job, item.expected
    return {
        "job": job.id,
        "backend": job.backend,
        "dataset": job.dataset,
        "target": job.target,
        "model": item.target.model or None,
        "slots": item.slots,
        "repeats": job.repeats,
        "limit": job.limit,
        "expected": expected.total,
        "unit": expected.unit,
        "supports_resume": expected.supports_resume,
        "requirements": list(expected.requirements),
        "warnings": list(expected.warnings),
    }


def show(suite: Suite, planned: Sequence[Planned]) -> None:
    """Print the plan: a table, then what each job needs and what to know of it."""
    print(printable(f"{suite.name}: {suite.description}"))
    if suite.pins != PRODUCTION:
        print(f"pins: {suite.pins}: no result of it counts as pinned")
    table = Table(box=None, pad_edge=False, header_style="")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in HEADINGS[4:] else "left", overflow="fold")
    for item in planned:
        job, expected = item.job, item.expected
        expects = f"{known(expected.total)} {expected.unit}"
        cells = (job.id, job.backend, job.dataset, job.target, str(item.slots), expects)
        table.add_row(*map(printable, cells))
    # Without markup and colours: the words are the file's and the backends'. A pipe has room for every word.
    wide = None if sys.stdout.isatty() else WIDE
    Console(markup=False, highlight=False, color_system=None, width=wide).print(table)
    parallel = suite.running.max_parallel_jobs
    print(f"expected: {known(total(planned))} in {len(planned)} job(s), {parallel} at a time")
    for what in ("requirements", "warnings"):
        told: dict[str, list[str]] = {}
        for item in planned:
            for line in getattr(item.expected, what):
                told.setdefault(line, []).append(item.job.id)
        if told:
            print(f"\n{what}:")
        for line, jobs in told.items():
            print(printable(f"  {', '.join(jobs)}: {line}"))
