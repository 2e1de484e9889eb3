"""Asking work to end: once is politely, twice is now, and the first reason is the one that counts.

A run has one `Stop`, and each job has one below it: what stops the run stops every job, and what stops a job
(its budget is spent) stops nothing else. It lives in one event loop; `ask` is for that loop's thread alone.
"""

from __future__ import annotations

import asyncio
from typing import Literal

Why = Literal["cancelled", "budget", "disk"]


class Stop:
    """A request to end, and how urgent it is.

    Args:
        above: What stops this one too, for the same reason.
    """

    def __init__(self, above: Stop | None = None) -> None:
        self.why: Why | None = None
        self._cancelled = 0
        self._asked = asyncio.Event()
        self._urgent = asyncio.Event()
        self._below: list[Stop] = []
        if above is not None:
            above._below.append(self)
            if above.why is not None:
                self.ask(above.why)
            self._cancelled = above._cancelled
            if above.urgent:
                self._urgent.set()

    @property
    def asked(self) -> bool:
        """Whether to end at all."""
        return self._asked.is_set()

    @property
    def urgent(self) -> bool:
        """Whether to end without waiting for anything."""
        return self._urgent.is_set()

    def ask(self, why: Why) -> None:
        """Ask for the end; a user who asks again wants it now.

        Args:
            why: The reason; the first one stays.
        """
        self._cancelled += why == "cancelled"
        self.why = self.why or why
        self._asked.set()
        if self._cancelled > 1:
            self._urgent.set()
        for stop in self._below:
            stop.ask(why)

    async def wait(self) -> None:
        """Return when the end is asked for."""
        await self._asked.wait()

    async def wait_urgent(self) -> None:
        """Return when it is asked for at once."""
        await self._urgent.wait()
