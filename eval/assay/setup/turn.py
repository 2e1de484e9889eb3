"""One set-up at a time: a lock that a second one waits for, and says so.

The kernel holds the lock for the open file, so it ends with the process that took it and with the children
that inherited it, however they end; nothing is left to clean up.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from assay.console import say
from assay.paths import OWNED, owned_directory, owned_lock


@contextmanager
def turn() -> Iterator[int]:
    """Hold the set-up's lock; yields its handle, for children that must hold it as well."""
    path = owned_directory(OWNED) / "setup.lock"
    handle = owned_lock(path)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode("ascii", "replace").strip() or "unknown"
            say(f"assay: waiting for another set-up of this checkout (process {holder}) ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode("ascii"), 0)
        yield handle
    finally:
        os.close(handle)
