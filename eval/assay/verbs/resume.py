"""`assay resume RUN`: go on with a run where it was, if everything that decides its result is as it was."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from assay.cli import shared
from assay.console import say
from assay.coordinator.state import is_suite
from assay.errors import ConfigurationError, RunError
from assay.run.state import load_state
from assay.signing.key import SigningKey, take_signing_key
from assay.signing.sign import sign_late
from assay.verbs.summarize import summarize


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser("resume", parents=[shared()], help="go on with an unfinished run")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=resume)


def resume(arguments: argparse.Namespace) -> int:
    """Go on, print what was found, and return the run's exit code."""
    run = arguments.run
    signer = take_signing_key(os.environ)
    if not is_suite(run):
        return _of_a_profile(arguments, signer)
    # Here alone: nothing else needs what asks.
    from assay.coordinator.command import resume_suite

    return resume_suite(run, arguments.json, signer)


def _of_a_profile(arguments: argparse.Namespace, signer: SigningKey | None) -> int:
    """Print what is done; of what is not, say what to do instead: nobody kept its answers apart."""
    run = arguments.run
    state = load_state(run)
    standing = state.standing(run)
    if standing == "live":
        raise RunError(
            f"{run} is being written by process {state.owner.pid}", "the run is live", f"assay status {run}"
        )
    if standing == "done":
        sign_late(run, signer)
        say(f"assay: {run}: it is done; nothing is left to be asked")
        return summarize(arguments)
    raise ConfigurationError(
        f"{run} is the run of a profile, which Assay does not take up again",
        "its evaluator asked the server itself, so no answer was kept apart from its own records",
        f"assay run --suite {state.profile} makes one that can be resumed; assay status {run} tells how the "
        "evaluator's own command would go on with this one",
    )
