"""A file while it is fetched: it grows inside the cache, never beyond its pinned size, and is named last.

It is named by its pinned digest, so what was left by an interrupted download can be continued by the next
command and by nothing else. Only a file whose size and digest are the pinned ones gets its final name.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from assay.data.hashing import Digests, hash_file
from assay.data.pins import PinnedFile
from assay.data.store import remove_command
from assay.errors import VerificationError
from assay.files import disk_full, sync_directory
from assay.paths import owned_directory, relative


class Partial:
    """A file that is being fetched, open for writing at its end.

    It has as much of a binary file's face as the hub's library needs to write into it. `begun` bytes were
    there before; `told` hears of every byte that comes, and of what must come again as a negative number.
    `came_from` names its origin in errors, once that is known.
    """

    def __init__(self, path: Path, file: PinnedFile, told: Callable[[int], None]) -> None:
        owned_directory(path.parent)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise OSError(errno.EINVAL, "something else stands in its place")
        except OSError as error:
            raise VerificationError(
                f"{relative(path)} is no regular file", f"{error.strerror}", remove_command(path)
            ) from error
        self.path = path
        self.came_from = file.path
        self.file = file
        self._stream = os.fdopen(handle, "r+b", buffering=0)
        self._told = told
        if os.fstat(handle).st_size > file.size_bytes:
            self._stream.truncate(0)
        self.begun = self._stream.seek(0, os.SEEK_END)

    @property
    def size_bytes(self) -> int:
        """How much is there."""
        return os.fstat(self._stream.fileno()).st_size

    @property
    def whole(self) -> bool:
        """Whether as much is there as is pinned."""
        return self.size_bytes == self.file.size_bytes

    def write(self, data: bytes) -> int:
        """Append.

        Raises:
            VerificationError: that would be more than the pinned size.
            RunError: the disk is full; what had been written stays, to be continued.
        """
        if self._stream.tell() + len(data) > self.file.size_bytes:
            raise self.refused(f"more than the pinned {self.file.size_bytes} bytes came")
        view = memoryview(data)
        try:
            while view:
                view = view[self._stream.write(view) :]
        except OSError as error:
            raise disk_full(self.path, error) from error
        self._told(len(data))
        return len(data)

    def tell(self) -> int:
        """The position: always the end."""
        return self._stream.tell()

    def seek(self, position: int) -> int:
        """Go back, to begin again from there; what lies behind is dropped with the next `truncate`."""
        return self._stream.seek(position)

    def truncate(self) -> int:
        """Drop everything behind the position."""
        before = self.size_bytes
        size = self._stream.truncate()
        self._told(size - before)
        return size

    def restart(self) -> None:
        """Drop everything: the next byte is the file's first."""
        self.seek(0)
        self.truncate()

    def refused(self, why: str) -> VerificationError:
        """The error for bytes that are not the pinned ones; none of them is kept."""
        self.restart()
        return VerificationError(
            f"{self.came_from} is not the pinned file",
            f"{why}; nothing of it was kept",
            "try again; if it stays so, it was changed there since datasets.lock was written",
        )

    def place(self, final: Path) -> Digests:
        """Check it and give it its final name; it is on the disk before it has it.

        Raises:
            VerificationError: its size or digest is not the pinned one; nothing of it was kept.
        """
        os.fsync(self._stream.fileno())
        stop = threading.Event()
        digests = hash_file(self.path, self.file.git_sha1 is not None, lambda count: None, stop)
        problem = digests.differs(self.file)
        if problem:
            raise self.refused(problem)
        owned_directory(final.parent)
        if os.path.lexists(final):
            raise VerificationError(
                f"{relative(final)} appeared while it was fetched", "", remove_command(final)
            )
        self.path.rename(final)
        sync_directory(final.parent)
        return digests

    def __enter__(self) -> Self:
        """The file itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; what has come stays, to be continued, unless it is nothing."""
        empty = self.size_bytes == 0
        self._stream.close()
        if empty:
            self.path.unlink(missing_ok=True)
