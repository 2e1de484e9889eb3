"""How far a download or a check is: a bar with bytes, speed and time left; without a terminal timed lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from assay.console import Diagnostics, say
from assay.data.pins import MEGA

HEARTBEAT_S = 15.0


class Meter(Protocol):
    """Counts the bytes of one piece of work."""

    def advance(self, size_bytes: int) -> None:
        """Count more bytes; fewer, when what had come must come again."""


class Unseen:
    """The meter of work that nobody watches."""

    def advance(self, size_bytes: int) -> None:
        """Count nothing."""


class Lines:
    """The meter without a terminal: a line whenever one is due."""

    def __init__(self, label: str, total_bytes: int, done_bytes: int) -> None:
        self._label = label
        self._total = total_bytes
        self._done = done_bytes
        self._gained = 0
        self._begin = time.monotonic()
        self._due = self._begin + HEARTBEAT_S
        self._guard = threading.Lock()

    def advance(self, size_bytes: int) -> None:
        """Count, and say where it stands if that is due."""
        with self._guard:
            self._done += size_bytes
            self._gained += size_bytes
            now = time.monotonic()
            if now < self._due:
                return
            self._due = now + HEARTBEAT_S
            say(self.line(now - self._begin))

    def line(self, elapsed_s: float) -> str:
        """One line: done, total, elapsed, speed, expected time left ("?" until it can be known)."""
        rate = self._gained / elapsed_s if elapsed_s > 0 else 0.0
        left = f"{(self._total - self._done) / rate:.0f} s" if rate > 0 else "?"
        speed = f"{rate / MEGA:.1f} MB/s" if rate > 0 else "?"
        of = f"{self._done / MEGA:.1f} of {self._total / MEGA:.1f} MB"
        return f"assay: {self._label}: {of}, {elapsed_s:.0f} s, {speed}, left {left}"


class Bar:
    """The meter on a terminal; it may be told by several threads."""

    def __init__(self, progress: Progress, label: str, total_bytes: int, done_bytes: int) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=total_bytes, completed=done_bytes)

    def advance(self, size_bytes: int) -> None:
        """Count."""
        self._progress.advance(self._task, size_bytes)


@contextmanager
def meter(label: str, total_bytes: int, done_bytes: int = 0, watched: bool = True) -> Iterator[Meter]:
    """Show how far the work is while the block runs.

    Args:
        label: What is worked on.
        total_bytes: How much it is.
        done_bytes: How much of it was there before.
        watched: Whether to show anything.
    """
    if not watched:
        yield Unseen()
        return
    if not sys.stderr.isatty():
        yield Lines(label, total_bytes, done_bytes)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(file=cast("TextIO", Diagnostics()))
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, label, total_bytes, done_bytes)
