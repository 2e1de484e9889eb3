"""What a command needs before it can start: its environments; then the command takes over.

`assay setup` itself needs none: it runs in whatever Python started it, from the standard library alone.
Every other command runs in the repository's environment, and is started there by replacing this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from assay import cli
from assay.console import complain, say
from assay.errors import AssayError
from assay.paths import ROOT
from assay.setup.build import ensure_all, stop_on_sigterm
from assay.setup.environments import ENVIRONMENTS, named

NEEDS = {
    "run": ("assay", "verifiers"),
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
    if verb not in NEEDS:
        stop_on_sigterm()
        return cli.main(words)
    stop_on_sigterm()
    asks_for_help = any(word in ("-h", "--help") for word in words)
    try:
        ensure_all(named(NEEDS[verb][:1] if asks_for_help and verb != "test" else NEEDS[verb]))
    except AssayError as error:
        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        say("assay: cancelled; what was downloaded is kept, and the next set-up goes on from there")
        return 6
    sys.stderr.flush()
    if verb == "test":
        python = str(ENVIRONMENTS["tests"].python)
        return os.execv(python, [python, str(ROOT / "tests" / "run.py"), *words[1:]])
    python = str(ENVIRONMENTS["assay"].python)
    return os.execv(python, [python, "-I", "-m", "assay.cli", *words])
