"""One build at a time: a lock that the kernel drops when its holder dies."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.console import say


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Hold the folder's build lock; wait, and say so, while another process has it."""
    with (folder / "build.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("assay: another process is building the sandbox image; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
