"""A job's kept answers, `answers/<job>.jsonl`: what was answered once is not asked again.

A line is on the disk before the child sees a byte of its answer. Lines that wait while one flush to the disk
is under way share the next one, so many requests in flight do not queue for it one by one.

Each line bears its number and the digest of its answer: a torn last line is cut off, a line that stands there
twice counts once, and anything else that is not as it was written is refused and never answered with. How a
line holds an answer and its request is `gateway.kept`'s.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import AssayError, RunError
from assay.files import disk_full, repair_tail, sync_directory
from assay.gateway.kept import altered, line_of, parsed, unpacked
from assay.gateway.message import Answer, Request

ASIDE_BYTES = 1 << 20  # what is longer is read in a thread, not in the loop


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kept answer stands in the journal: offset and length of its line, in bytes."""

    offset: int
    size: int


@dataclass
class _Waiting:
    request: Request
    answer: Answer
    kept: asyncio.Future[Place]


class Journal:
    """The journal of one job, for one life of its lane.

    Opening it repairs and reads what earlier lives kept; only that is replayed, for a child asks each thing
    once in its life, and twice means it wants two answers.
    """

    def __init__(self, path: Path, told: Callable[[str, Mapping[str, object]], None]) -> None:
        """Open the journal, or make it.

        Args:
            path: The file; its directory must exist.
            told: Told of repairs and of a full disk: kind and fields of an event.

        Raises:
            VerificationError: a line is not as it was written.
            RunError: the disk is full.
        """
        self.path = path
        self._name = f"{path.parent.name}/{path.name}"  # below the run directory
        self.failure: AssayError | None = None
        self.prompt_tokens = self.completion_tokens = self.count = 0
        self._told = told
        self._places: dict[bytes, list[Place]] = {}
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        torn = repair_tail(path)
        if torn:
            told("tail-repaired", {"file": self._name, "bytes_cut": torn})
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            sync_directory(path.parent)
        except OSError as error:
            raise disk_full(path, error) from error
        self._size = os.fstat(self._handle).st_size
        self._load()

    def _load(self) -> None:
        offset = 0
        digests: list[bytes] = []
        twice = 0
        with self.path.open("rb") as file:
            for line in file:
                value = self._checked(line, offset)
                digest = bytes.fromhex(value["key"]) + bytes.fromhex(value["digest"])
                if value["number"] == self.count:
                    digests.append(digest)
                    self.count += 1
                    self.prompt_tokens += value["prompt_tokens"] or 0
                    self.completion_tokens += value["completion_tokens"] or 0
                    self._places.setdefault(digest[:32], []).append(Place(offset, len(line)))
                elif value["number"] < self.count and digests[value["number"]] == digest:
                    twice += 1
                else:
                    why = f"number {value['number']} stands where {self.count} must"
                    raise altered(self.path, offset, why)
                offset += len(line)
        if twice:
            self._told("lines-twice", {"file": self._name, "lines": twice})

    def _checked(self, line: bytes, offset: int) -> dict[str, Any]:
        """The line's value, with its fields as they must be."""
        try:
            return parsed(line)
        except ValueError as error:
            raise altered(self.path, offset, str(error)) from error

    @property
    def unclaimed(self) -> int:
        """Answers of earlier lives that were not asked for in this one, so far."""
        return sum(len(places) for places in self._places.values())

    def take(self, key: str) -> Place | None:
        """The next kept answer to an equal request, which is then taken; None when there is none (left)."""
        digest = bytes.fromhex(key)
        places = self._places.get(digest)
        if not places:
            return None
        place = places.pop(0)
        if not places:
            del self._places[digest]
        return place

    def give_back(self, key: str, place: Place) -> None:
        """Let an answer that its child never saw be taken again, before the others."""
        self._places.setdefault(bytes.fromhex(key), []).insert(0, place)

    async def read(self, place: Place) -> Answer:
        """A kept answer; VerificationError when it is not as it was written."""
        if place.size < ASIDE_BYTES:
            return self._read(place)
        return await asyncio.to_thread(self._read, place)

    def _read(self, place: Place) -> Answer:
        value = self._checked(os.pread(self._handle, place.size, place.offset), place.offset)
        try:
            return unpacked(value).answer
        except ValueError as error:
            raise altered(self.path, place.offset, str(error)) from error

    def keep(self, request: Request, answer: Answer) -> asyncio.Future[Place]:
        """Append an answer to what was asked; the future is done when it is on the disk.

        The future fails with RunError when the disk is full. From then on everything fails, so that nothing
        is asked whose answer would be lost.
        """
        kept: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            kept.set_exception(self.failure)
            return kept
        self._waiting.append(_Waiting(request, answer, kept))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        return kept

    async def _write_all(self) -> None:
        """Write what waits, again and again: what came while one flush was under way goes into the next."""
        loop = asyncio.get_running_loop()
        batch: list[_Waiting] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                places = await loop.run_in_executor(self._thread, self._write, batch)
                for waiting, place in zip(batch, places, strict=True):
                    if not waiting.kept.done():
                        waiting.kept.set_result(place)
        except OSError as error:
            self._fail(error)
        finally:
            # Whatever happened, nobody waits for ever.
            cause = self.failure or RunError(f"{self.path} was closed while an answer was on its way into it")
            for waiting in (*batch, *self._waiting):
                if not waiting.kept.done():
                    waiting.kept.set_exception(cause)
                    waiting.kept.exception()  # read here: a child that went away no longer reads it
            self._waiting = []
            self._writing = None

    def _write(self, batch: list[_Waiting]) -> list[Place]:
        """Append the lines and flush them to the disk, all or none of them."""
        lines = [line_of(number, item.request, item.answer) for number, item in enumerate(batch, self.count)]
        data = memoryview(b"".join(lines))
        try:
            while data:
                data = data[os.write(self._handle, data) :]
            os.fdatasync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._size)
            raise
        places = []
        for line in lines:
            places.append(Place(self._size, len(line)))
            self._size += len(line)
        self.count += len(lines)
        return places

    def _fail(self, error: OSError) -> None:
        cause = disk_full(self.path, error)
        if not isinstance(cause, AssayError):
            cause = RunError(f"{self.path} could not be written", str(error), "mend the disk, then resume")
        self.failure = cause
        self._told("disk-full", {"file": self._name, "error": str(cause)})

    async def close(self) -> None:
        """Write what waits, and close the file."""
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
