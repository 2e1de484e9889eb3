r"""What a child prints: taken line by line, secrets out, into the run's log; the last lines are remembered.

A line is what a terminal would show of it: of a progress bar that is drawn over and over with `\r` the last
state. An endless line is cut, after its secrets are out, so that none is cut in two.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from assay.console import printable
from assay.coordinator.redact import Secrets

LAST_LINES = 4
REMEMBERED_CHARACTERS = 300  # of each; the log has the whole line
LONGEST_LINE = 1 << 16
# The longest spelling of the longest key (4,096 characters, each quoted as three, or as six in JSON).
LONGEST_SECRET = 6 * 4096


class Output(asyncio.Protocol):
    """The reading end of a child's output.

    Args:
        secrets: What must not be written.
        log: Takes a line; it must not raise.
    """

    def __init__(self, secrets: Secrets, log: Callable[[str], None]) -> None:
        self._secrets = secrets
        self._log = log
        self._begun = b""
        self._cut = False
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        *whole, self._begun = (self._begun + data).split(b"\n")
        for line in whole:
            self._line(line)
        if len(self._begun) > LONGEST_LINE + LONGEST_SECRET:
            # Of a bar that is drawn again and again only the last state is ever shown.
            last = self._begun.rsplit(b"\r", 1)[-1]
            if len(last) <= LONGEST_LINE:
                self._begun = last
            else:
                self._line(self._begun)
                self._begun, self._cut = b"", True

    def connection_lost(self, error: Exception | None) -> None:
        """Take what was left without a line end."""
        if self._begun:
            self._line(self._begun)
            self._begun = b""
        self.ended.set()

    @property
    def last(self) -> str:
        """The last lines, as one; empty when nothing was printed."""
        return " | ".join(self._last)

    def _line(self, line: bytes) -> None:
        if self._cut:  # the rest of a line that was too long
            self._cut = False
            return
        shown = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", errors="replace")
        text = printable(self._secrets.text(shown).expandtabs())
        if len(text) > LONGEST_LINE:
            text = f"{text[:LONGEST_LINE]} ... (cut)"
        if text.strip():
            self._last.append(_begin(text.strip()))
            self._log(text.rstrip())


def _begin(text: str) -> str:
    """The beginning of a line, which is enough to know it by."""
    return text if len(text) <= REMEMBERED_CHARACTERS else f"{text[:REMEMBERED_CHARACTERS]} ..."
