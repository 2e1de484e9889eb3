"""`assay setup [NAME …] [--check] [--python P] [--rebuild]`: the locked environments."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict

from assay.cli import answer, shared
from assay.console import say
from assay.errors import ConfigurationError
from assay.setup import ENVIRONMENTS, EnvironmentState, check, ensure_all, named

DEFAULT = ("assay", "verifiers")
UNHASHED = ("name", "directory", "python_version", "python_path", "uv_version", "locks", "versions")


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "setup",
        parents=[shared()],
        help="make and check the locked environments",
        description="Make the locked environments, bring them up to date, or check every installed byte.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(ENVIRONMENTS)}, or all (default: {' and '.join(DEFAULT)})",
    )
    parser.add_argument("--check", action="store_true", help="hash what is installed and change nothing")
    parser.add_argument("--python", metavar="P", help="make them with this Python (else one is found)")
    parser.add_argument("--rebuild", action="store_true", help="make them again from the start")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Make or check the environments and print one line for each."""
    names = list(ENVIRONMENTS) if "all" in arguments.names else arguments.names or DEFAULT
    environments = named(names)
    if arguments.check and (arguments.rebuild or arguments.python):
        raise ConfigurationError(
            "--check changes nothing, so it cannot be combined with --rebuild or --python",
            "",
            "eval/scripts/setup --check",
        )
    begin = time.monotonic()
    if arguments.check:
        states = [check(item) for item in environments]
        shown = [asdict(state) for state in states]
    else:
        states = ensure_all(environments, arguments.python, arguments.rebuild)
        # The digests are those of the last check, not of now: only --check may claim them.
        shown = [{key: asdict(state)[key] for key in UNHASHED} for state in states]
    report(states, arguments.check)
    say(f"assay: {'checked' if arguments.check else 'ready'}: {time.monotonic() - begin:.1f} s")
    if arguments.json:
        answer({"status": "ok", "environments": shown})
    return 0


def report(states: Sequence[EnvironmentState], checked: bool) -> None:
    """Print one line for each environment: what it is, in numbers, and its digest if it was just taken."""
    for state in states:
        verdict = f"{state.files} files as installed, sha256 {state.digest}" if checked else "ready"
        packages = f"Python {state.python_version}, {len(state.versions)} packages"
        print(f"{state.name}: {packages}: {verdict}")
