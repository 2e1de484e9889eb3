"""Ctrl-C and SIGTERM as something to look at, so that neither can break into the ending of a child."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

HANDLED = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """A context; `asked` is how often the user or the system wanted an end since it was entered."""

    def __init__(self) -> None:
        self.asked = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1

    def __enter__(self) -> Self:
        """Take the signals over."""
        self._before = {number: signal.signal(number, self._handle) for number in HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
