"""The gateway: opens a lane for each job, and carries what goes through them."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from assay.backends.base import Lane
from assay.errors import RunError
from assay.gateway.connections import Connections
from assay.gateway.descriptors import make_room
from assay.gateway.http import Front, Server
from assay.gateway.journal import Journal
from assay.gateway.lane import Events, OpenLane
from assay.gateway.pool import Pool
from assay.gateway.spent import Spent
from assay.run.key import Key
from assay.suite.job import Budget

HOST = "127.0.0.1"
UNBOUNDED = Budget()
NOTHING = Spent()


class Gateway:
    """The HTTP server between children and targets, while it is entered; it runs in the loop that enters it.

    Events, each with its `job`: `tail-repaired`, `lines-twice`, `journal-altered`, `disk-full`,
    `request-retried`, `request-failed`, `endpoint-failed`, `endpoint-works`, `endpoint-resting`,
    `usage-missing`, `budget-exhausted`, `lane-closed`. None of their fields holds a key.
    """

    def __init__(self, events: Events) -> None:
        """A gateway that says what happens.

        Args:
            events: Told of what a reader of the run should know: kind and fields.
        """
        self._events = events
        self._lanes: dict[str, OpenLane] = {}

    async def __aenter__(self) -> Self:
        """Listen on a free port of loopback."""
        self._connections = Connections()
        # Named in full: only of a socket that says it is TCP does the loop send small pieces at once.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind((HOST, 0))
        self._server = Server(Front(self._lanes))
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._connections.close()
            raise RunError("the gateway does not start", str(self._serving.exception() or ""))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every lane and the server."""
        try:
            for lane in list(self._lanes.values()):
                await lane.close()
        finally:
            self._server.should_exit = True
            await self._serving
            await self._connections.close()

    @property
    def root(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self._socket.getsockname()[1]}"

    def open(
        self,
        job: str,
        pool: Pool,
        journal_path: Path,
        budget: Budget = UNBOUNDED,
        spent: Spent = NOTHING,
    ) -> OpenLane:
        """Open a job's lane.

        Args:
            job: Its name, one path segment.
            pool: Of its target; one for all jobs of the target, for its slots are counted there.
            journal_path: `answers/<job>.jsonl` of the run, new or of earlier lives; its directory must exist.
            budget: When to stop; the gateway counts the tokens of it.
            spent: What earlier lives cost.

        Raises:
            VerificationError: the journal is not as it was written.
            RunError: the journal cannot be made; or the job's lane is open.
            PrerequisiteError: this process may not open as many connections as the lanes can need.
        """
        if job in self._lanes:
            raise RunError(f"the lane of {job} is open", "a job runs once at a time")
        # A child has as many workers as its target has slots, also while fewer of them are let through.
        make_room(pool.target.max_concurrency + sum(lane.most for lane in self._lanes.values()))

        def told(kind: str, fields: Mapping[str, object]) -> None:
            self._events(kind, {"job": job, **fields})

        journal = Journal(journal_path, told)
        lane = Lane(f"{self.root}/{job}/v1", pool.doors[0].endpoint.model, Key(secrets.token_urlsafe(32)))
        opened = OpenLane(
            job=job,
            lane=lane,
            pool=pool,
            journal=journal,
            budget=budget,
            spent=spent,
            connections=self._connections,
            events=self._events,
            closed=self._lanes.pop,
        )
        self._lanes[job] = opened
        return opened
