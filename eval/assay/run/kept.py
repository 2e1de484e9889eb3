"""Programs that end with all they started, however they end and whatever becomes of who started them.

A program is started below a keeper (`assay.run.keeper`). Who starts it holds the keeper in its place: a
signal to the one is handed on to the other, the one ends as the other did, and not before everything below is
gone. kill -9 on the run ends a pipe that it alone keeps open. The kernel sends the program SIGTERM for that,
at the same moment and whoever sleeps, since a program that goes on without its server records failures that
are none; the keeper sees that it obeys.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from assay.paths import EVAL
from assay.process import TERMINATE_GRACE_S, adopt_orphans, die_with_parent, start
from assay.process import end as end_unkept
from assay.run.keeper import AT_ONCE, HEARD, LAST_S, MODULE

GRACE_S = 20.0
"""What a program has for its own clean-up, whose slowest part is the removal of containers."""


@contextmanager
def kept(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    stderr: IO[bytes] | int = subprocess.STDOUT,
    grace_s: float = GRACE_S,
    prepare: Callable[[], None] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a session of its own; when the block ends, nothing of it is left.

    Args:
        command: Program and arguments.
        env: The program's whole environment.
        cwd: Its working directory.
        stdout: Where its output goes.
        stderr: Where its diagnostics go, and the keeper's, should it fail; with its output by default.
        grace_s: Seconds that it has to end after SIGTERM, which it gets where this process dies or the block
            is left before its end.
        prepare: Runs in the program's process before it, to bound it; what it raises is no start.

    Yields:
        Its keeper, to be used as if it was the program. SIGINT and SIGHUP are handed on to the program alone,
        SIGTERM to its group; `end` ends it, since a keeper that is killed keeps nothing.

    Raises:
        OSError: the program cannot be started, or not be bounded or kept.
    """
    waiting, held = os.pipe()
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, held)

        def part() -> None:
            _part(waiting, grace_s)
            if prepare is not None:
                prepare()

        try:
            child = start(
                command, env=env, cwd=cwd, stdout=stdout, stderr=stderr, prepare=part, outlives=True
            )
        except subprocess.SubprocessError as error:
            raise OSError(errno.EAGAIN, f"it cannot be bounded or kept: {error}") from error
        finally:
            os.close(waiting)
        try:
            yield child
        finally:
            opened.close()
            child.wait()


def _part(waiting: int, grace_s: float) -> None:
    """Runs in the child before exec: that becomes the keeper, and a child of it goes on to the program.

    Signals that come before the keeper listens wait for it, since exec keeps the mask.
    """
    adopt_orphans()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    keeper = os.getpid()
    program = os.fork()
    if program:
        os.dup2(0, 1)
        os.chdir("/")
        os.set_inheritable(waiting, True)
        words = [str(word) for word in (program, waiting, grace_s)]
        # Without the program's environment, and so without its secrets.
        os.execve(
            sys.executable, [sys.executable, "-P", "-S", "-m", MODULE, *words], {"PYTHONPATH": str(EVAL)}
        )
    os.setsid()
    die_with_parent(keeper)
    _be_told(waiting)
    # A signal that comes before exec is for the program, and not for what the run does with it.
    for number in HEARD:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_told(waiting: int) -> None:
    """Have the kernel send this process SIGTERM when a pipe ends, once."""
    fcntl.fcntl(waiting, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(waiting, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(waiting, fcntl.F_SETFL, fcntl.fcntl(waiting, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(waiting, select.POLLIN)
    # A pipe that ended before the lines above sends no signal any more.
    if poll.poll(0):
        os._exit(1)


def end(
    child: subprocess.Popen[bytes], first: int = signal.SIGTERM, grace_s: float = TERMINATE_GRACE_S
) -> int:
    """End a kept program and everything below it: politely, then by SIGKILL; returns its exit status.

    Args:
        child: Its keeper.
        first: The polite signal; SIGKILL for none.
        grace_s: Seconds it has to obey.
    """
    polite = () if first == signal.SIGKILL else ((first, grace_s),)
    for number, within_s in (*polite, (AT_ONCE, 2 * LAST_S)):
        child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(within_s)
    return end_unkept(child, signal.SIGKILL)
