"""Watching a child work: live progress on a terminal, heartbeats elsewhere, and what a signal asks for.

Progress is read from the evaluator's own record (whole lines of it), so it cannot claim more than what is on
the disk. A heartbeat is due by the clock, also when nothing has happened since the last.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from assay.console import Diagnostics, say

HEARTBEAT_S = 15.0
POLL_S = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Cancellation:
    """How often the user asked to stop: once is politely, twice is now."""

    def __init__(self) -> None:
        self.count = 0
        self.signal = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        self.count += 1
        self.signal = number

    @property
    def asked(self) -> bool:
        """Whether to stop at all."""
        return self.count > 0

    @property
    def urgent(self) -> bool:
        """Whether to stop without waiting for anything."""
        return self.count > 1


@contextmanager
def cancellation() -> Iterator[Cancellation]:
    """Catch SIGINT, SIGTERM and SIGHUP while the block runs, and count them."""
    asked = Cancellation()
    before = {number: signal.signal(number, asked) for number in SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Meter:
    """Rollouts done, out of how many, at what rate, and when the rest will be."""

    def __init__(self, label: str, total: int) -> None:
        self.label = label
        self.total = total
        self.begin = time.monotonic()
        self.first: float | None = None
        self.done = 0

    def update(self, done: int) -> None:
        """Take note of the count."""
        if done and self.first is None:
            self.first = time.monotonic()
        self.done = done

    def line(self) -> str:
        """One line: done/total, elapsed, rate, expected time left ("?" until it can be known)."""
        elapsed = time.monotonic() - self.begin
        rate = self.done / elapsed if elapsed > 0 and self.done else None
        left = f"{(self.total - self.done) / rate:.0f} s" if rate else "?"
        speed = f"{rate:.2f}/s" if rate else "?"
        return f"assay: {self.label}: {self.done}/{self.total}, {elapsed:.0f} s, {speed}, left {left}"


def count_lines(path: Path) -> int:
    """Whole lines in a file; 0 when it is not there."""
    try:
        with path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except FileNotFoundError:
        return 0


def watch(
    label: str,
    total: int,
    record: Callable[[], Path],
    running: Callable[[], bool],
    asked: Cancellation,
    heard: Callable[[int], None],
) -> int:
    """Follow a record until the child has ended or the user asks to stop.

    Args:
        label: What is running.
        total: Rollouts planned.
        record: Where the JSONL file is that grows by one line a rollout; some evaluators choose its folder
            themselves, so it is asked again and again.
        running: Whether the child still runs.
        asked: What signals ask for.
        heard: Called with the count whenever it has changed.

    Returns:
        Rollouts in the record at the end.
    """
    meter = Meter(label, total)
    size = -1
    due = time.monotonic() + HEARTBEAT_S
    with _display(label, total) as show:
        while True:
            alive = running()
            path = record()
            now_size = path.stat().st_size if path.exists() else 0
            if now_size != size:
                size = now_size
                done = count_lines(path)
                if done != meter.done:
                    meter.update(done)
                    heard(done)
                    show(done)
            if not alive or asked.asked:
                return meter.done
            if not sys.stderr.isatty() and time.monotonic() >= due:
                due += HEARTBEAT_S
                say(meter.line())
            time.sleep(POLL_S)


@contextmanager
def _display(label: str, total: int) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    begin = time.monotonic()
    console = Console(file=cast("TextIO", Diagnostics()))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=total, rate="?/s")

        def show(done: int) -> None:
            progress.update(task, completed=done, rate=f"{done / max(time.monotonic() - begin, 1e-9):.2f}/s")

        yield show
