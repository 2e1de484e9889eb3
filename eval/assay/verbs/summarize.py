"""`assay summarize RUN`: a run's results computed again from its native records, and printed."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.cli import answer, shared
from assay.console import say
from assay.coordinator.state import is_suite
from assay.plan import NAME, load_plan
from assay.record.render import show
from assay.record.results import SUMMARY, derive, load_summary, load_tasks, summarise
from assay.record.summary import EXIT_CODES, Summary
from assay.run.state import load_state
from assay.signing.sign import signature_said


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser("summarize", parents=[shared()], help="print a run's results again")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=summarize)


def recompute(run: Path) -> Summary:
    """The summary of what lies in the run directory, also of a run that died; nothing is written.

    Raises:
        VerificationError: it is not a run, or its records cannot be read.
    """
    state = load_state(run)
    plan = load_plan(run / NAME)
    tasks = load_tasks(run, plan)
    samples, faults = derive(run, plan, tasks)
    if (run / SUMMARY).exists():
        recorded = load_summary(run)
        problems, notes, server = recorded.problems, recorded.notes, recorded.server
    else:
        problems, notes, server = (
            (*faults, f"the run did not come to its end ({state.standing(run)})"),
            (),
            None,
        )
    return summarise(plan, tasks, samples, problems, notes, state.phase == "cancelled", server)


def summarize(arguments: argparse.Namespace) -> int:
    """Print the results and return the exit code they stand for."""
    if is_suite(arguments.run):
        # Here alone: a profile's run needs none of it.
        from assay.coordinator.command import summarize_suite

        return summarize_suite(arguments.run, arguments.json)
    summary = recompute(arguments.run)
    show(summary, stderr=arguments.json)
    signed_by, said = signature_said(arguments.run)
    (say if arguments.json else print)(said)
    code = EXIT_CODES[summary.status]
    if arguments.json:
        answer(
            {
                "run_dir": str(arguments.run.resolve()),
                "exit_code": code,
                "signed_by": signed_by,
                **summary.model_dump(mode="json"),
            }
        )
    return code
