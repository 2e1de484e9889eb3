"""The keeper of a program: its parent, and the one to whom whatever is left of it falls.

A program that dies at once leaves what it started to nobody, in sessions of their own and with init as their
parent: no look at the table of processes finds that any more, however soon after. So the keeper stands above
the program from the first moment on (`assay.run.kept`) and adopts every orphan below it. It ends when it has
no child any more, by the exit code or by the signal that the program ended by; so its end says that nothing
of the program is left.

It hands on signals, and waits for the end of a pipe that the run alone keeps open, which says that the run is
dead. The program was told too, and has some seconds; should it be deaf, all is killed. When the program has
ended, what it left is killed at once, except what has a keeper of its own: a run that was killed leaves its
evaluator to that one, which gives it the time to remove its containers.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from assay.process import descendants, kill

MODULE = "assay.run.keeper"
ALONE = frozenset({signal.SIGINT, signal.SIGHUP})
"""Handed on to the program alone."""
GROUP = frozenset({signal.SIGTERM})
"""Handed on to the program's whole group."""
AT_ONCE = signal.SIGQUIT
"""Kill the program and everything below it, now."""
HEARD = ALONE | GROUP | {AT_ONCE, signal.SIGCHLD}
LAST_S = 10.0
"""What killed processes have to be gone; one that the system cannot kill now is not waited for longer."""
LOOK_S = 0.1


class Keeper:
    """What is known of the program.

    Attributes:
        program: Its process id; it leads its session.
        grace_s: Seconds that it has when the run is dead, and that other keepers have when it has ended.
        status: How it ended, as wait(2) tells it; None while it lives.
        last: When everything that is left is killed, on the monotonic clock; None while nothing has ended.
    """

    def __init__(self, program: int, grace_s: float) -> None:
        self.program = program
        self.grace_s = grace_s
        self.status: int | None = None
        self.last: float | None = None

    def hear(self, number: int) -> None:
        """Do what a signal to this process asks for."""
        if number == AT_ONCE:
            self.within(0.0)
        elif self.status is None:  # its id is its own until it is waited for
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if number in ALONE:
                    os.kill(self.program, number)
                elif number in GROUP:
                    os.killpg(self.program, number)

    def within(self, seconds: float) -> None:
        """Kill everything in that time, or before if that was said already."""
        last = time.monotonic() + seconds
        self.last = last if self.last is None else min(self.last, last)

    def reap(self) -> bool:
        """Take note of the children that have ended; whether one is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.program:
                self.status = status
                self.within(self.grace_s)

    def clear(self) -> float | None:
        """Kill what is not to be there now; seconds until the next look, None for when there is news."""
        if self.status is not None:
            below = descendants(os.getpid())
            others = kept_among(below)
            kill(below - others)
            if not others:
                self.within(0.0)
        if self.last is None:
            return None
        left_s = self.last - time.monotonic()
        if left_s <= 0:
            kill(descendants(os.getpid()))
        return LOOK_S if left_s <= 0 or self.status is not None else left_s

    def keep(self, waiting: int, woken: int) -> int:
        """Keep the program until nothing of it is left; how it ended, as wait(2) tells it.

        Args:
            waiting: The pipe whose end says that the run is dead.
            woken: The pipe that has a byte for each signal to this process.
        """
        poll = select.poll()
        poll.register(waiting, select.POLLIN)
        poll.register(woken, select.POLLIN)
        # What is killed leaves orphans, and may start others until it is; so again, until there is no child.
        while self.reap():
            wait_s = self.clear()
            if self.last is not None and time.monotonic() >= self.last + LAST_S:
                break
            for handle, _ in poll.poll(None if wait_s is None else wait_s * 1000):
                if handle == waiting:
                    poll.unregister(waiting)
                    self.within(self.grace_s)
                else:
                    for number in os.read(woken, 4096):
                        self.hear(number)
        return signal.SIGKILL if self.status is None else self.status


def kept_among(processes: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The keepers among some processes, and all that stands below them."""
    keepers = {each for each in processes if is_keeper(each[0])}
    return keepers.union(*(descendants(pid) for pid, _ in keepers))


def is_keeper(pid: int) -> bool:
    """Whether a process is a keeper; what only looks like one gains some seconds."""
    try:
        return MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def hear_signals() -> int:
    """Have a byte for each signal to this process, those included that came before; where it is read."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in HEARD:
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    return woken


def leave(status: int) -> NoReturn:
    """End this process as another one ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # nobody handles SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    # Without Python's own end, in which a signal that comes late would change how this one ends.
    os._exit(os.WEXITSTATUS(status))


def main(program: int, waiting: int, grace_s: float) -> NoReturn:
    """Keep a child of this process that is there already.

    Args:
        program: Its process id.
        waiting: The pipe whose end says that the run is dead.
        grace_s: Seconds that the program has then.
    """
    for handle in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if handle > 2 and handle != waiting:
            with contextlib.suppress(OSError):  # the look itself had one
                os.close(handle)
    leave(Keeper(program, grace_s).keep(waiting, hear_signals()))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
