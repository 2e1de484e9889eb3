"""What a person sees of a run's jobs: a live table on a terminal, and lines by the clock elsewhere.

Both are drawn by a timer and not by what is heard, so a backend that is silent is seen to be silent. A total
that nobody knows stays `?`, and so does the time left where it cannot be told. Without a terminal a line
holds no control codes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from assay.console import Diagnostics, printable, say

WINDOW_S = 60.0
"""Over which a rate is taken: answers that a resume had kept come at another pace than those after them."""
SAMPLE_S = 1.0
REFRESHES_A_SECOND = 4
FRAME_LINES = 4
UNKNOWN = "?"
STYLES = {"done": "green", "partial": "yellow", "failed": "red"}


class Line:
    """How far one job is.

    Args:
        label: The job.
        total: Samples; None where nobody knows.
    """

    def __init__(self, label: str, total: int | None) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self.status: str | None = None
        self.doing = "start"
        self.granted: int | None = None
        self._begun = time.monotonic()
        self._ended: float | None = None
        self._seen = deque([(self._begun, 0)])

    def reached(self, done: int, total: int | None = None) -> None:
        """Take note of how far it is; a total that is known stays known."""
        self.done = done
        self.total = self.total if total is None else total
        now = time.monotonic()
        if now - self._seen[-1][0] >= SAMPLE_S:
            self._seen.append((now, done))

    def phase(self, doing: str) -> None:
        """Say what is being done, in a word."""
        self.doing = doing

    def slots(self, granted: int) -> None:
        """Say how many requests it may have in flight."""
        self.granted = granted

    def end(self, status: str) -> None:
        """Say how it ended."""
        if self._ended is None:
            self._ended = time.monotonic()
            self.status = status

    @property
    def seconds(self) -> float:
        """Since it began, until it ended."""
        return (time.monotonic() if self._ended is None else self._ended) - self._begun

    @property
    def rate(self) -> float | None:
        """Samples a second: of late while it runs, and over all of it when it has ended; None before any."""
        if self._ended is not None:
            begun, before = self._begun, 0
            now = self._ended
        else:
            now = time.monotonic()
            while len(self._seen) > 1 and self._seen[1][0] <= now - WINDOW_S:
                self._seen.popleft()
            begun, before = self._seen[0]
        if self.done <= before or now <= begun:
            return None
        return (self.done - before) / (now - begun)

    def cells(self) -> tuple[str, str, str, str, str]:
        """What is done of how much, since when, how fast, how long it will take, with how many slots."""
        rate = self.rate
        left = None
        if rate is not None and self.total is not None and self._ended is None:
            left = max(0, self.total - self.done) / rate
        counted = f"{self.done}/{UNKNOWN if self.total is None else self.total}"
        speed = UNKNOWN if rate is None else f"{rate:.2f}/s"
        granted = UNKNOWN if self.granted is None else str(self.granted)
        return counted, duration(self.seconds), speed, duration(left), granted

    def text(self) -> str:
        """All of it in one line."""
        counted, elapsed, speed, left, granted = self.cells()
        if self._ended is not None:
            return f"{self.label}: {self.status}: {counted}, {elapsed}, {speed}"
        slots = "" if self.granted is None else f", {granted} slot(s)"
        return f"{self.label}: {self.doing}: {counted}, {elapsed}, {speed}, left {left}{slots}"


class Display:
    """The jobs of a run, shown while the block runs.

    Args:
        heartbeat_seconds: Between two lines of each active job, where there is no terminal.
    """

    def __init__(self, heartbeat_seconds: float) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._lines: list[Line] = []
        self._live: Live | None = None
        self._beating: asyncio.Task[None] | None = None

    def job(self, label: str, total: int | None) -> Line:
        """Show one more job, which begins now."""
        line = _Spoken(label, total) if self._live is None else Line(label, total)
        self._lines.append(line)
        return line

    async def __aenter__(self) -> Self:
        """Begin to show."""
        if sys.stderr.isatty():
            console = Console(file=cast("TextIO", Diagnostics()))
            self._live = Live(
                console=console,
                get_renderable=lambda: self.table(console.height),
                refresh_per_second=REFRESHES_A_SECOND,
            )
            self._live.start()
        else:
            self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show it a last time."""
        if self._live is not None:
            self._live.stop()
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            for line in self._lines:
                if line.status is None:
                    say(f"assay: {line.text()}")

    def table(self, height: int) -> Table:
        """The table that a terminal shows: every active job, and of those that ended as many as fit.

        Args:
            height: Lines of the terminal.
        """
        active = [line for line in self._lines if line.status is None]
        ended = [line for line in self._lines if line.status is not None]
        room = max(0, height - FRAME_LINES - len(active))
        table = Table(box=None, pad_edge=False)
        table.add_column("job", overflow="ellipsis", no_wrap=True)
        table.add_column("phase", no_wrap=True)
        for name in ("done", "elapsed", "rate", "left", "slots"):
            table.add_column(name, justify="right", no_wrap=True)
        for line in [*(ended[-room:] if room else []), *active]:
            counted, elapsed, speed, left, granted = line.cells()
            doing = Text(printable(line.status or line.doing), style=STYLES.get(line.status or "", ""))
            rest = ("", "") if line.status is not None else (left, granted)
            table.add_row(Text(printable(line.label)), doing, counted, elapsed, speed, *rest)
        return table


class _Spoken(Line):
    """A job without a terminal: its beginning and its end are lines of their own."""

    def __init__(self, label: str, total: int | None) -> None:
        super().__init__(label, total)
        say(f"assay: {self.text()}")

    def end(self, status: str) -> None:
        """Say how it ended."""
        if self.status is None:
            super().end(status)
            say(f"assay: {self.text()}")


def duration(seconds: float | None) -> str:
    """A time as a person reads it; `?` for one that is not known."""
    if seconds is None:
        return UNKNOWN
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
