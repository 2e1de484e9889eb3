"""`lock`: one process at a time writes into a run's directory.

The system's own lock is what excludes; it is gone with the process that held it, however that died. It lies
on the file and on the directory itself, so that whoever removes the file as a leftover lets nobody in.
Whether a run is live is asked of the system too (`held`): what stands in the file only says who holds or last
held it, and a copy of the directory says the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.console import printable
from assay.errors import RunError, VerificationError
from assay.files import disk_full
from assay.run.state import Owner, boot_id, now, this_process

NAME = "lock"
ATTEMPTS = 5
PAUSE_S = 0.2


class Holder(BaseModel):
    """Who holds a run's directory, or held it last.

    Attributes:
        owner: The process.
        host: The machine's name.
        since: UTC, ISO 8601.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    owner: Owner
    host: str
    since: str

    @property
    def foreign(self) -> bool:
        """Whether it ran on another machine, so that nobody here can tell whether it lives."""
        return self.owner.boot_id != boot_id() and self.host != socket.gethostname()


def read_holder(run: Path) -> Holder | None:
    """Who holds or last held a run; None where nobody can be told."""
    try:
        return Holder.model_validate_json((run / NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def held(run: Path) -> bool:
    """Whether a process writes into the directory now, as the system knows it, whatever the file says."""
    for path, flags in ((run / NAME, os.O_NOFOLLOW | os.O_NONBLOCK), (run, os.O_DIRECTORY)):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        except OSError:
            continue
        try:
            # For a moment only: a process that wants it now tries again.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            continue  # a file system without such locks
        finally:
            os.close(handle)
    return False


class RunLock:
    """The lock of one run directory, held while the block runs.

    Args:
        run: The run directory.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self._handles: list[int] = []

    def __enter__(self) -> Self:
        """Take it and write who holds it.

        Raises:
            RunError: another process holds it, or the disk is full.
            VerificationError: what stands in its place is no file of ours.
        """
        path = self.run / NAME
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            self._handles = [handle]
            self._handles.append(os.open(self.run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            self._release()
            raise VerificationError(
                f"{path} cannot be locked, so nothing in the run is changed",
                error.strerror or str(error),
                f"look at it: ls -l {path}",
            ) from error
        try:
            for each in self._handles:
                self._take(each)
            holder = Holder(owner=this_process(), host=socket.gethostname(), since=now())
            data = (json.dumps(holder.model_dump(mode="json"), indent=2) + "\n").encode("utf-8")
            try:
                os.pwrite(handle, data, 0)
                os.ftruncate(handle, len(data))
                os.fsync(handle)
            except OSError as error:
                raise disk_full(path, error) from error
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back; what it says of the last holder stays."""
        self._release()

    def _release(self) -> None:
        while self._handles:
            os.close(self._handles.pop())

    def _take(self, handle: int) -> None:
        # A process that was killed may need a moment until it is gone.
        for attempt in range(ATTEMPTS):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if attempt + 1 < ATTEMPTS:
                    time.sleep(PAUSE_S)
            except OSError:
                if handle == self._handles[0]:
                    raise
                return  # some file systems of other machines lock files alone
            else:
                return
        holder = read_holder(self.run)
        who = (
            f"process {holder.owner.pid} on {printable(holder.host)} since {printable(holder.since)}"
            if holder
            else "another process"
        )
        raise RunError(
            f"{self.run} is being written by {who}",
            "two at once would mix their records",
            f"assay status {self.run}",
        )
