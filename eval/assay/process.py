"""Child processes that never outlive their parent and never see a terminal's Ctrl-C by accident.

A child is started in its own session, so one signal to its process group reaches everything it started;
on Linux it is also told to die with its parent (PR_SET_PDEATHSIG), so kill -9 on Assay leaves nothing behind
it. Commands are argument lists, never shell text, and secrets never stand among them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
TERMINATE_GRACE_S = 10.0


def _die_with_parent(number: int) -> None:
    """Runs in the child before exec: have it signalled when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def start(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    stderr: IO[bytes] | int = subprocess.STDOUT,
    death_signal: int = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a child in its own process group.

    Args:
        command: Program and arguments.
        env: The child's whole environment.
        cwd: Its working directory.
        stdout: Where its output goes.
        stderr: Where its diagnostics go; with its output by default.
        death_signal: What it gets when this process dies; a child that must clean up wants SIGTERM.

    Raises:
        OSError: the program cannot be started.
    """
    return subprocess.Popen(
        [os.fspath(part) for part in command],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=lambda: _die_with_parent(death_signal),
    )


def signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the child's whole process group; nothing happens when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def end(
    child: subprocess.Popen[bytes], first: int = signal.SIGTERM, grace_s: float = TERMINATE_GRACE_S
) -> int:
    """End a child and everything in its group: politely, then with SIGKILL; returns its exit status.

    Args:
        child: The child.
        first: The polite signal.
        grace_s: Seconds it has to obey.
    """
    if child.poll() is None:
        signal_group(child, first)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    signal_group(child, signal.SIGKILL)
    return child.wait()


def start_time_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such process.

    With the process id this names a process for good: an id is used again, a pair is not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] in {"Z", "X"}:
        return None
    return int(fields[19])
