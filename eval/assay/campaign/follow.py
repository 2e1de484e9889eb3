"""A run as a child of the campaign: what ends that ends the run first, which records what had finished."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.campaign.signals import Signals
from assay.console import say
from assay.errors import AssayError, CancelledError, ConfigurationError, RunError
from assay.paths import ROOT, relative
from assay.process import finish
from assay.run.kept import kept

POLL_S = 0.2
# What a run that lost its campaign has, to end its evaluators and to record what had finished.
GRACE_S = 120.0
SHORT_S = 120.0


@dataclass(frozen=True)
class Followed:
    """How a run's command ended.

    Attributes:
        exit_code: Its own.
        problem: What made it end before its time; None when nothing did.
    """

    exit_code: int
    problem: AssayError | None = None


def command(*words: str) -> list[str]:
    """The command line of a verb of this checkout."""
    return [sys.executable, "-m", "assay.cli", *words]


def follow(
    words: Sequence[str], server: subprocess.Popen[bytes] | None, signals: Signals, again: str, quiet: bool
) -> Followed:
    """Run a verb of this command to its end.

    Args:
        words: Of the verb.
        server: Whose end ends it too; None where that is nobody's business.
        signals: Each is handed on to it.
        again: The command that goes on later.
        quiet: Its results go to standard error, since standard output is for something else.
    """
    sys.stdout.flush()
    started = kept(
        command(*words),
        env=os.environ,
        cwd=ROOT,
        stdout=sys.stderr.fileno() if quiet else sys.stdout.fileno(),
        stderr=sys.stderr.fileno(),
        grace_s=GRACE_S,
    )
    handed, gone = 0, False
    with started as child:
        while child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(POLL_S)
            if signals.asked > handed and child.poll() is None:
                handed += 1
                child.send_signal(signal.SIGINT)
            elif not (handed or gone) and server is not None and server.poll() is not None:
                gone = True
                say(
                    f"assay: the server ended with exit code {server.returncode} in mid-run; the run ends too"
                )
                child.send_signal(signal.SIGINT)
    if handed:
        return Followed(child.returncode, CancelledError("cancelled; what had finished is kept", "", again))
    if gone and server is not None:
        why = "what had finished is kept, and nothing was asked after it"
        told = f"the server ended with exit code {server.returncode} before its run did"
        return Followed(child.returncode, RunError(told, why, f"read its log, then {again}"))
    return Followed(child.returncode)


def ended_well(run: Path) -> bool:
    """Whether a run is done, as `assay status` tells; ConfigurationError when it is alive."""
    done = finish(command("status", str(run), "--json"), env=os.environ, cwd=ROOT, timeout_s=SHORT_S)
    told = last_object(done.stdout)
    if told.get("status") == "live":
        raise ConfigurationError(
            f"{relative(run)} is alive", "another command carries it on", f"assay status {relative(run)}"
        )
    return done.returncode == 0 and told.get("status") == "done"


def last_object(output: bytes) -> dict[str, Any]:
    """The JSON object in the last line of what a verb printed under `--json`; empty when there is none."""
    lines = output.strip().splitlines()
    with contextlib.suppress(ValueError, IndexError):
        value = json.loads(lines[-1])
        if isinstance(value, dict):
            return value
    return {}
