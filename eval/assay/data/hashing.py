"""Both digests of a file in one reading, several files at a time, as fast as the disk and the processors are.

Which of the two is pinned is the lock's choice (the hub knows small files by Git's hash of them as a blob);
SHA-256 is always taken, since a run records everything by it.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assay.data.pins import PinnedFile

CHUNK_BYTES = 1 << 20
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Digests:
    """What a file is: its size in bytes, its SHA-256, and Git's hash of it where that was asked for."""

    size_bytes: int
    sha256: str
    git_sha1: str | None

    def differs(self, file: PinnedFile) -> str:
        """How it differs from what is pinned, in a clause; empty when it does not."""
        if self.size_bytes != file.size_bytes:
            return f"it has {self.size_bytes} bytes, but datasets.lock says {file.size_bytes}"
        found = self.sha256 if file.algorithm == "sha256" else self.git_sha1
        if found != file.digest:
            return f"it is {file.algorithm} {found}, but datasets.lock says {file.digest}"
        return ""


class Hasher:
    """Takes the digests of the bytes it is given, in order."""

    def __init__(self, size_bytes: int, with_git: bool) -> None:
        self.size_bytes = 0
        self._sha256 = hashlib.sha256()
        # A blob's hash begins with its size, so it must be known before the first byte.
        self._git = hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False) if with_git else None

    def update(self, data: bytes | memoryview) -> None:
        """Take more bytes."""
        self.size_bytes += len(data)
        self._sha256.update(data)
        if self._git is not None:
            self._git.update(data)

    def digests(self) -> Digests:
        """The digests of what was taken so far."""
        git = self._git.hexdigest() if self._git is not None else None
        return Digests(self.size_bytes, self._sha256.hexdigest(), git)


def hash_file(path: Path, with_git: bool, advance: Advance, stop: threading.Event) -> Digests:
    """The digests of one file; OSError if it cannot be read, KeyboardInterrupt once `stop` is set.

    Args:
        path: The file.
        with_git: Whether Git's hash is wanted too.
        advance: Called with the number of bytes of each chunk.
        stop: Set by who no longer wants the answer.
    """
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as stream:
        hasher = Hasher(os.fstat(stream.fileno()).st_size, with_git)
        while count := stream.readinto(buffer):
            if stop.is_set():
                raise KeyboardInterrupt
            hasher.update(view[:count])
            advance(count)
    return hasher.digests()


def hash_all(files: Sequence[tuple[Path, PinnedFile]], advance: Advance) -> list[Digests]:
    """The digests of each file, in the order given; the longest are begun first.

    One thread a processor: hashlib releases the interpreter's lock, and one core hashes slower than a disk
    reads.
    """
    stop = threading.Event()
    order = sorted(range(len(files)), key=lambda index: -files[index][1].size_bytes)
    with ThreadPoolExecutor(max(1, min(len(files), os.cpu_count() or 1))) as pool:
        tasks = {}
        for index in order:
            path, file = files[index]
            tasks[index] = pool.submit(hash_file, path, file.git_sha1 is not None, advance, stop)
        try:
            return [tasks[index].result() for index in range(len(files))]
        finally:
            stop.set()
