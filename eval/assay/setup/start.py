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
from pathlib import Path

from assay import cli, pinset
from assay.files import read_json
from assay.paths import ROOT
from assay.setup import library, stamp
from assay.setup.build import ensure_all, stop_on_sigterm
from assay.setup.environments import ENVIRONMENTS, named
from assay.shell import python_variables

NEEDS = {
    "campaign": ("assay",),
    "run": ("assay",),
    "data": ("assay",),
    "sandbox": ("assay", "verifiers"),
    "audit": ("assay",),
    "resume": ("assay",),
    "reward": ("assay",),
    "test": ("assay", "tests", "verifiers", "evalscope", "inspect"),
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
    needed = (*NEEDS[verb], *evaluator_of(words[1:])) if verb == "run" else NEEDS[verb]
    ensure_all(named(needed[:1] if asks_for_help and verb != "test" else needed))
    if verb == "test":
        library.fetch()
        return become("tests", str(ROOT / "tests" / "run.py"), *words[1:])
    return become("assay", "-I", "-m", "assay.cli", *words)


def evaluator_of(words: Sequence[str]) -> list[str]:
    """The evaluator that a run's profile names, so that both environments are made beside each other.

    It is empty for what is no profile, no entry of it and no resolved run: the command itself judges that,
    and nobody waits for an evaluator's environment to hear of a slip.
    """
    try:
        profiles = tomllib.loads((pinset.current().configs / "profiles.toml").read_text("utf-8"))
        place = next(at for at, word in enumerate(words) if word in profiles or word.endswith(".json"))
        if words[place].endswith(".json"):
            evaluator = str(read_json(Path(words[place]))["evaluator"])
        else:
            profile = profiles[words[place]]
            evaluator = str(profile["evaluator"])
            entry = next((word for word in words[place + 1 : place + 2] if not word.startswith("-")), None)
            if entry is not None and entry not in {str(facts["name"]) for facts in profile["entry"]}:
                return []
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return []
    return [evaluator] if evaluator in ENVIRONMENTS else []


def become(environment: str, *words: str) -> int:
    """Replace this process by the environment's Python; returns only by raising."""
    python = str(ENVIRONMENTS[environment].python)
    sys.stderr.flush()
    return os.execve(python, [python, *words], {**os.environ, **python_variables()})
