"""`assay resume RUN`: go on with a run where it was, if everything that decides its result is as it was."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.cli import shared
from assay.coordinator.state import is_suite
from assay.errors import AssayError, ConfigurationError, RunError
from assay.run.state import load_state


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser("resume", parents=[shared()], help="go on with an unfinished run")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=resume)


def resume(arguments: argparse.Namespace) -> int:
    """Go on, print what was found, and return the run's exit code."""
    run = arguments.run
    if not is_suite(run):
        raise _of_a_profile(run)
    # Here alone: nothing else needs what asks.
    from assay.coordinator.command import resume_suite

    return resume_suite(run, arguments.json)


def _of_a_profile(run: Path) -> AssayError:
    """What to do instead, where the evaluator asked the server itself and nobody kept the answers."""
    state = load_state(run)
    standing = state.standing(run)
    what = f"{run} is the run of a profile, which Assay does not take up again"
    if standing == "live":
        return RunError(
            f"{run} is being written by process {state.owner.pid}", "the run is live", f"assay status {run}"
        )
    if standing == "done":
        return ConfigurationError(what, "it is done: nothing is left to be asked", f"assay summarize {run}")
    return ConfigurationError(
        what,
        "its evaluator asked the server itself, so no answer was kept apart from its own records",
        f"assay run --suite {state.profile} makes one that can be resumed; assay status {run} tells how the "
        "evaluator's own command would go on with this one",
    )
