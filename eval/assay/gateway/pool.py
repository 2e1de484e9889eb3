"""A target's slots: who may ask now, and at which of its endpoints.

A slot is one request in flight at the target. There are never more than the target's `max_concurrency` over
all lanes and endpoints, nor more of a lane than its limit, whatever changes meanwhile: a slot is counted when
it is granted and comes back exactly once, that of a request which was given up a moment later: its server has
to notice first. Among lanes that have room, who came first is served first, and a
request that is asked again keeps its place.

An endpoint that wants to be left alone (Retry-After) rests: nobody asks it before. One that cannot be reached
or fails is avoided as long as another one works, and then tried by one request first.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.errors import ConfigurationError
from assay.run.endpoint import Endpoint
from assay.suite.target import Target

AVOIDED_FIRST_S = 0.5
AVOIDED_LONGEST_S = 30.0
PROBE_S = 10.0  # how long the one request that tries a failed endpoint has it for itself


class RestingError(Exception):
    """Every endpoint wants to be left alone for longer than a request waits."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"every endpoint wants to be left alone for {seconds:.0f} s more")
        self.seconds = seconds


class Door:
    """One endpoint of a pool, and how it stands. Times are the loop's."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.in_flight = 0
        self.failures = 0
        self.rests_until = 0.0
        self.avoided_until = 0.0
        self.turn = 0

    def rest(self, seconds: float) -> None:
        """It asked to be left alone."""
        self.rests_until = max(self.rests_until, asyncio.get_running_loop().time() + seconds)

    def failed(self) -> bool:
        """It could not be reached, or failed; whether it worked until now."""
        wait = min(AVOIDED_LONGEST_S, AVOIDED_FIRST_S * 2.0**self.failures)
        self.avoided_until = asyncio.get_running_loop().time() + wait
        self.failures = min(self.failures + 1, 16)
        return self.failures == 1

    def worked(self) -> bool:
        """It answered; whether it had failed before."""
        failed = self.failures > 0
        self.failures = 0
        self.avoided_until = 0.0
        return failed


@dataclass(order=True)
class _Waiter:
    ticket: int
    granted: asyncio.Future[Slot] = field(compare=False)


class Slot:
    """A request in flight at an endpoint."""

    def __init__(self, pool: Pool, line: Line, door: Door) -> None:
        self.door = door
        self._pool: Pool | None = pool
        self._line = line

    def release(self, after_s: float = 0.0) -> None:
        """Give it back, at once or after a while; a second call does nothing.

        Args:
            after_s: How long its server may need to notice that its client is gone.
        """
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if after_s:
            asyncio.get_running_loop().call_later(after_s, pool.give_back, self._line, self.door)
        else:
            pool.give_back(self._line, self.door)


class Line:
    """A lane's requests before a pool."""

    def __init__(self, pool: Pool, limit: int) -> None:
        self.pool = pool
        self.in_flight = 0
        self.waiters: list[_Waiter] = []
        self._limit = limit

    @property
    def limit(self) -> int:
        """Slots it may hold at once. Lowered, it cuts nothing off: the next ones wait until there is room."""
        return self._limit

    @limit.setter
    def limit(self, value: int) -> None:
        self._limit = value
        self.pool.hand_out()


class Pool:
    """The endpoints of a target, and its slots."""

    def __init__(self, target: Target, endpoints: Sequence[Endpoint]) -> None:
        """A pool of endpoints that all serve the same model by the same name.

        Raises:
            ConfigurationError: there is none, or they are to be asked for different names.
        """
        if len({endpoint.model for endpoint in endpoints}) != 1:
            raise ConfigurationError(
                f"the target {target.name} is no pool",
                "its endpoints serve different models, or there are none",
                "make each model a target of its own",
            )
        self.target = target
        self.doors = tuple(Door(endpoint) for endpoint in endpoints)
        self.in_flight = 0
        self._lines: list[Line] = []
        self._tickets = itertools.count()
        self._turns = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot now, in all lanes."""
        return sum(len(line.waiters) for line in self._lines)

    def join(self, limit: int) -> Line:
        """A new lane's line."""
        line = Line(self, limit)
        self._lines.append(line)
        return line

    def leave(self, line: Line) -> None:
        """The line is closed; nobody waits in it any more."""
        self._lines.remove(line)

    def ticket(self) -> int:
        """A place in the order of coming."""
        return next(self._tickets)

    async def slot(self, line: Line, ticket: int) -> Slot:
        """Wait for a slot; the caller releases it.

        Raises:
            RestingError: it would have to wait longer than the target's `longest_wait_seconds` for an
                endpoint that wants to be left alone.
        """
        waiter = _Waiter(ticket, asyncio.get_running_loop().create_future())
        bisect.insort(line.waiters, waiter)
        self.hand_out()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            # It may have been granted in the same turn of the loop in which its request was given up.
            if waiter.granted.done() and not waiter.granted.cancelled() and not waiter.granted.exception():
                waiter.granted.result().release()
            raise
        finally:
            if waiter in line.waiters:
                line.waiters.remove(waiter)

    def give_back(self, line: Line, door: Door) -> None:
        """A slot's release."""
        line.in_flight -= 1
        door.in_flight -= 1
        self.in_flight -= 1
        self.hand_out()

    def hand_out(self) -> None:
        """Grant what can be granted."""
        while self.in_flight < self.target.max_concurrency:
            line = self._next()
            if line is None:
                return
            now = asyncio.get_running_loop().time()
            door = self._door(now)
            if door is None:
                self._wait(now)
                return
            waiter = line.waiters.pop(0)
            if waiter.granted.done():
                continue
            line.in_flight += 1
            door.in_flight += 1
            self.in_flight += 1
            door.turn = next(self._turns)
            if door.failures:
                door.avoided_until = now + PROBE_S
            waiter.granted.set_result(Slot(self, line, door))

    def _next(self) -> Line | None:
        """The line with room in which the one waits who came first."""
        ready = [line for line in self._lines if line.waiters and line.in_flight < line.limit]
        return min(ready, key=lambda line: line.waiters[0].ticket, default=None)

    def _door(self, now: float) -> Door | None:
        """The endpoint to ask: one that works, the least busy, in turn; None where it is better to wait.

        Where all fail and none rests there is nothing to wait for but the request's own pause.
        """
        open_ = [door for door in self.doors if door.rests_until <= now]
        sound = [door for door in open_ if door.avoided_until <= now]
        if sound:
            return min(sound, key=lambda door: (door.in_flight, door.turn))
        if len(open_) == len(self.doors):
            return min(open_, key=lambda door: door.avoided_until)
        return None

    def _wait(self, now: float) -> None:
        """Come again when an endpoint may be asked, or say that this is too long."""
        until = min(max(door.rests_until, door.avoided_until) for door in self.doors)
        if until - now > self.target.request.longest_wait_seconds:
            for line in self._lines:
                for waiter in line.waiters:
                    if not waiter.granted.done():
                        waiter.granted.set_exception(RestingError(until - now))
                line.waiters.clear()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(until, self.hand_out)
