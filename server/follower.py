"""One request's view of its answers: events as they come, and the end when its client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from starlette.types import Receive

from server.errors import ApiError
from server.generation import Delta
from server.scheduler import Scheduler, Ticket


class ClientGoneError(Exception):
    """The client closed its connection; there is nobody to answer."""


class Follower:
    """Follows a ticket; used as a context manager so that leaving it always frees the slots."""

    def __init__(self, scheduler: Scheduler, ticket: Ticket, choices: int, receive: Receive) -> None:
        """Watch `receive` (whose body was read) for the client's going away."""
        self._scheduler = scheduler
        self._ticket = ticket
        self._left = choices
        self._watcher = asyncio.create_task(self._watch(receive))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        self._scheduler.cancel(self._ticket)
        self._ticket.events.put_nowait(None)

    async def next(self) -> Sequence[Delta]:
        """Return all that is new, at least one delta; empty when every choice has ended.

        Raises:
            ApiError: the engine failed.
            ClientGoneError: the client left; its slots are free within a step.
        """
        if not self._left:
            return ()
        events = self._ticket.events
        batch = [await events.get()]
        while not events.empty():
            batch.append(events.get_nowait())
        deltas: list[Delta] = []
        for event in batch:
            if event is None:
                raise ClientGoneError
            if isinstance(event, ApiError):
                raise event
            deltas.append(event)
            if event.finish:
                self._left -= 1
        return deltas

    def close(self) -> None:
        """Stop watching, and free the slots of what has not ended."""
        self._watcher.cancel()
        if self._left:
            self._scheduler.cancel(self._ticket)

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
