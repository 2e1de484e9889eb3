"""What a command needs before it can start: its environments; then the command takes over.

`assay setup` itself needs none: it runs in whatever Python started it, from the standard library alone.
Every other command runs in the repository's environment, and is started there by replacing this process;
`assay doctor` too if that environment is whole, and where it is not it says so.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Sequence

from assay import cli, pinset
from assay.paths import ROOT
from assay.setup import stamp
from assay.setup.build import ensure_all, stop_on_sigterm
from assay.setup.environments import ENVIRONMENTS, named
from assay.shell import python_variables

NEEDS = {
    "run": ("assay", "verifiers"),
    "data": ("assay",),
    "sandbox": ("assay", "verifiers"),
    "audit": ("assay",),
    "reward": ("assay",),
    "test": ("assay", "tests", "verifiers"),
}


def start(words: Sequence[str]) -> int:
    """Make what the command needs and start it.

    Args:
        words: The verb and its arguments.

    Returns:
        The exit code, if the command was run here or could not be started.
    """
    verb = words[0] if words else ""
    stop_on_sigterm()
    if verb == "doctor" and stamp.staleness(ENVIRONMENTS["assay"]) is None:
        return become("assay", "-I", "-m", "assay.cli", *words)
    if verb not in NEEDS:
        return cli.main(words)
    return cli.guard(words, lambda: take_over(verb, words))


def take_over(verb: str, words: Sequence[str]) -> int:
    """Make the environments and become the command; returns only by raising."""
    asks_for_help = any(word in ("-h", "--help") for word in words)
    needed = (NEEDS[verb][0], evaluator_of(words[1:])) if verb == "run" else NEEDS[verb]
    ensure_all(named(needed[:1] if asks_for_help and verb != "test" else needed))
    if verb == "test":
        return become("tests", str(ROOT / "tests" / "run.py"), *words[1:])
    return become("assay", "-I", "-m", "assay.cli", *words)


def evaluator_of(words: Sequence[str]) -> str:
    """The evaluator that a run's profile names, so that both environments are made beside each other.

    What is no profile is judged by the command itself, later; until then it is the default's.
    """
    default = NEEDS["run"][1]
    try:
        profiles = tomllib.loads((pinset.current().configs / "profiles.toml").read_text("utf-8"))
        named = next(word for word in words if word in profiles)
        evaluator = str(profiles[named]["evaluator"])
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return default
    return evaluator if evaluator in ENVIRONMENTS else default


def become(environment: str, *words: str) -> int:
    """Replace this process by the environment's Python; returns only by raising."""
    python = str(ENVIRONMENTS[environment].python)
    sys.stderr.flush()
    return os.execve(python, [python, *words], {**os.environ, **python_variables()})
