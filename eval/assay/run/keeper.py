"""Who sees to it that an evaluator ends when its run was killed.

kill -9 on a run sends the evaluator SIGTERM, so that it removes what it started. One whose own clean-up hangs
would then stay for ever, since nobody is left to insist. So the run starts this small process beside it. It
holds a descriptor that names the evaluator for good and waits for the end of a pipe that the run alone keeps
open: a byte says that the run has ended the evaluator itself; the bare end says that the run is dead.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from assay.paths import EVAL
from assay.process import descendants, session, start_time_ticks

GRACE_S = 20.0
"""What the evaluator has for its own clean-up, whose slowest part is the removal of containers."""


@contextmanager
def keeper(child: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> Iterator[None]:
    """Keep watch over a child while the block runs, which ends it.

    Args:
        child: In a process group of its own.
        grace_s: Seconds it has to end when this process was killed.

    Raises:
        OSError: the watch cannot be started.
    """
    with contextlib.ExitStack() as opened:
        waiting, held = os.pipe()
        opened.callback(os.close, held)
        with contextlib.ExitStack() as handed:
            handed.callback(os.close, waiting)
            named = os.pidfd_open(child.pid)
            handed.callback(os.close, named)
            words = [child.pid, named, waiting, grace_s]
            watch = subprocess.Popen(
                [sys.executable, "-S", "-m", "assay.run.keeper", *(str(word) for word in words)],
                env={"PYTHONPATH": str(EVAL)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(named, waiting),
                start_new_session=True,
            )
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.write(held, b"e")
            # Should the byte be lost, the end of the pipe is heard, and the child has ended by now.
            opened.close()
            watch.wait()


def watch_over(pid: int, named: int, waiting: int, grace_s: float) -> None:
    """Wait until the run says that the evaluator has ended, or is dead; then see that the evaluator ends.

    What it had started by then ends with it, also where it goes in peace and leaves that behind.

    Args:
        pid: The evaluator, leader of its session.
        named: A descriptor of that process.
        waiting: The pipe's end.
        grace_s: Seconds that it has.
    """
    if os.read(waiting, 1):
        return
    # Looked up at once, and by the session too: what has lost its parent cannot be found by it any more.
    started = descendants(pid) | session(pid) - {(pid, start_time_ticks(pid))}
    if not ended(named, grace_s):
        started |= descendants(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    for other, ticks in started:
        if start_time_ticks(other) == ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(other, signal.SIGKILL)


def ended(named: int, within_s: float) -> bool:
    """Whether the process of a descriptor ends in that time."""
    poll = select.poll()
    poll.register(named, select.POLLIN)
    return bool(poll.poll(within_s * 1000))


if __name__ == "__main__":
    watch_over(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
