"""Child processes that never outlive their parent and never see a terminal's Ctrl-C by accident.

A child is started in its own session, so a terminal's Ctrl-C reaches Assay alone, which then ends the child
and everything it started, sessions of their own included. On Linux a child also dies with its parent
(PR_SET_PDEATHSIG), so kill -9 on Assay leaves no child behind it; one that starts programs itself is started
with a keeper besides (`assay.run.kept`). Commands are argument lists, never shell text, and secrets never
stand among them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from assay.errors import CancelledError, RunError

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Looked up here and not in the child: between fork and exec the loader may be locked for ever, by a thread
# that the child does not have.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
TERMINATE_GRACE_S = 10.0
POLL_S = 0.1


def adopt_orphans() -> None:
    """Be the parent of every process below this one that loses its own; stays so across exec."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Runs in the child before exec: have it killed when the thread that started it ends."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A parent that died before the line above has nobody killed any more.
        if os.getppid() != parent:
            os._exit(1)


def start(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    stderr: IO[bytes] | int = subprocess.STDOUT,
    prepare: Callable[[], None] | None = None,
    outlives: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child in its own process group.

    Args:
        command: Program and arguments.
        env: The child's whole environment.
        cwd: Its working directory.
        stdout: Where its output goes.
        stderr: Where its diagnostics go; with its output by default.
        prepare: Runs in the child before the program, to bound it; what it raises is no start.
        outlives: Whether it may outlive this process, which kills it otherwise.

    Raises:
        OSError: the program cannot be started.
        subprocess.SubprocessError: `prepare` raised.
    """
    parent = os.getpid()

    def begin() -> None:
        if not outlives:
            die_with_parent(parent)
        if prepare is not None:
            prepare()

    return subprocess.Popen(
        [os.fspath(part) for part in command],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=begin,
    )


def signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the child's whole process group; nothing happens when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def end(
    child: subprocess.Popen[bytes], first: int = signal.SIGTERM, grace_s: float = TERMINATE_GRACE_S
) -> int:
    """End a child and everything it started: politely, then with SIGKILL; returns its exit status.

    Args:
        child: The child.
        first: The polite signal.
        grace_s: Seconds it has to obey.
    """
    started: set[tuple[int, int]] = set()
    if child.poll() is None:
        # Looked up before each signal: what has lost its parent cannot be found by it any more.
        started |= descendants(child.pid)
        signal_group(child, first)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    if child.poll() is None:
        started |= descendants(child.pid)
    signal_group(child, signal.SIGKILL)
    code = child.wait()
    kill(started)
    return code


def kill(processes: Iterable[tuple[int, int]]) -> None:
    """Kill those of some processes, as (id, start time), that are still there."""
    for pid, ticks in processes:
        if start_time_ticks(pid) == ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def finish(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    timeout_s: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> subprocess.CompletedProcess[bytes]:
    """Run a child to its end and return what it said; it is ended first when that is no longer wanted.

    Args:
        command: Program and arguments.
        env: The child's whole environment.
        cwd: Its working directory.
        timeout_s: Seconds it may take.
        cancelled: Asked again and again: whether to give up.

    Raises:
        CancelledError: `cancelled` said so.
        RunError: it did not end in time.
        OSError: the program cannot be started.
    """
    child = start(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                output, diagnostics = child.communicate(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                if cancelled():
                    raise CancelledError("cancelled before anything was asked") from None
                if time.monotonic() >= deadline:
                    raise RunError(f"{command[0]} did not end within {timeout_s:.0f} s") from None
            else:
                return subprocess.CompletedProcess(child.args, child.returncode, output, diagnostics)
    finally:
        end(child, signal.SIGKILL)


def descendants(pid: int) -> set[tuple[int, int]]:
    """Every process below one, as (id, start time): its children, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(path.name))
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            waiting.append(child)
            ticks = start_time_ticks(child)
            if ticks is not None:
                found.add((child, ticks))
    return found


def start_time_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such process.

    With the process id this names a process for good: an id is used again, a pair is not.
    """
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """A living process's fields from its state on (proc(5), third field); None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    # A process whose first thread has ended is shown as a zombie, and lives as long as another thread does.
    return None if fields[0] in {"Z", "X"} and int(fields[17]) <= 1 else fields
