"""A job's lane while it is open: its limit, its journal, and what it has spent."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import httpx

from assay.backends.base import Lane
from assay.errors import AssayError
from assay.gateway.asking import Asking, exchange
from assay.gateway.connections import Connections
from assay.gateway.journal import Journal, Place
from assay.gateway.message import Answer, Request, refusal
from assay.gateway.pool import Pool
from assay.gateway.spent import Spent
from assay.suite.job import Budget

# What a child may ask for: to be answered, which takes a slot and is kept, or to be told, which is neither.
ASKED = frozenset(
    {
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"),
        *("/tokenize", "/detokenize", "/v1/messages/count_tokens"),
    }
)
TOLD = frozenset({"/v1/models", "/identity", "/props", "/version", "/health"})
TOLD_SECONDS = 30.0
MOST_GIVEN_UP = 1024  # failures that are remembered for a client's own repetitions
Events = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True)
class Answered:
    """An answer for a child.

    Attributes:
        answer: What it gets.
        key: The request's, where the answer is kept.
        place: Where it is kept; None where it is not.
    """

    answer: Answer
    key: str = ""
    place: Place | None = None


class OpenLane:
    """A lane that is open, from `Gateway.open` to `close`.

    Attributes:
        job: Its name.
        lane: What the child is given.
        exhausted: Set when the job's budget of tokens is spent; then only the journal answers,
            and what would be asked waits until the lane is closed.
    """

    def __init__(
        self,
        *,
        job: str,
        lane: Lane,
        pool: Pool,
        journal: Journal,
        budget: Budget,
        spent: Spent,
        connections: Connections,
        events: Events,
        closed: Callable[[str], object],
    ) -> None:
        self.job = job
        self.lane = lane
        self.exhausted = asyncio.Event()
        self._pool = pool
        self._journal = journal
        self._budget = budget
        self._connections = connections
        self._events = events
        self._line = pool.join(pool.target.max_concurrency)
        self._open: set[asyncio.Task[Answered]] = set()
        self._asking = 0
        self._given_up: dict[str, Answer] = {}
        self._closed = False
        self._on_closed = closed
        # A crash may have come between an answer that was kept and a state that was saved.
        self._spent = replace(
            spent,
            prompt_tokens=max(spent.prompt_tokens, journal.prompt_tokens),
            completion_tokens=max(spent.completion_tokens, journal.completion_tokens),
            requests=max(spent.requests, journal.count),
        )
        self._weigh()

    @property
    def limit(self) -> int:
        """The grant: slots it may hold at once. It may change at any time; what is in flight goes on."""
        return self._line.limit

    @limit.setter
    def limit(self, value: int) -> None:
        self._line.limit = value

    @property
    def most(self) -> int:
        """Requests that its child may ever have open: its target's slots."""
        return self._pool.target.max_concurrency

    @property
    def in_flight(self) -> int:
        """Requests at the target now."""
        return self._line.in_flight

    @property
    def waiting(self) -> int:
        """Requests that are to go to the target and are not there: for want of a slot, or until retried."""
        return max(0, self._asking - self._line.in_flight)

    @property
    def busy(self) -> bool:
        """Whether a request of the child is being answered, from wherever."""
        return bool(self._open)

    @property
    def spent(self) -> Spent:
        """What the job has cost, over all its lives."""
        return self._spent

    @property
    def unclaimed(self) -> int:
        """Kept answers of earlier lives that nobody has asked for in this one, so far."""
        return self._journal.unclaimed

    @property
    def failure(self) -> AssayError | None:
        """Why nothing can be kept any more, a full disk most likely; None while all is well."""
        return self._journal.failure

    def opens(self, key: str) -> bool:
        """Whether this is the lane's key."""
        own = self.lane.key.reveal()
        return hmac.compare_digest(key.encode("utf-8", "replace"), own.encode("ascii"))

    def ask(self, request: Request) -> asyncio.Task[Answered]:
        """Begin to answer a child's request, from the journal or from the target.

        The task may be cancelled when the child is gone: the request at the target ends, its slot is free.
        """
        task = asyncio.create_task(self._answer(request))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return task

    def unseen(self, answered: Answered) -> None:
        """The child went away before it saw the answer: if it is kept, the next equal request gets it."""
        if answered.place is not None:
            self._journal.give_back(answered.key, answered.place)

    async def _answer(self, request: Request) -> Answered:
        path = request.path.partition("?")[0]
        if self._closed:
            return Answered(refusal(503, "lane_closed", f"the lane of {self.job} is closed"))
        if request.method == "POST" and path in ASKED:
            return await self._kept(request) or await self._asked(request)
        if request.method == "GET" and (
            path in TOLD or (path.startswith("/v1/models/") and ".." not in path)
        ):
            return Answered(await self._told(request))
        return Answered(refusal(404, "not_found", f"the lane has no {request.method} {path}"))

    async def _kept(self, request: Request) -> Answered | None:
        """The next kept answer; None when there is none left."""
        place = self._journal.take(request.key)
        if place is None:
            return None
        try:
            answer = await self._journal.read(place)
        except AssayError as error:
            self._events("journal-altered", {"job": self.job, "error": str(error)})
            return Answered(refusal(500, "journal_altered", str(error)))
        except asyncio.CancelledError:
            self._journal.give_back(request.key, place)
            raise
        self._count(replayed=1)
        return Answered(answer, request.key, place)

    async def _asked(self, request: Request) -> Answered:
        """The target's answer, kept if it is final."""
        if self._journal.failure is not None:
            return self._failed(refusal(507, "disk_full", str(self._journal.failure)))
        if self.exhausted.is_set():
            # The job is being ended: an answer would make a failure of what was never asked.
            await asyncio.get_running_loop().create_future()
        given_up = self._given_up.pop(request.key, None)
        if given_up is not None and request.repeated:
            # It was asked as often as it may be. A proxy in the child may have lost the word that says so.
            return self._failed(given_up, request)
        self._count(requests=1)
        asking = Asking(self._connections, self._pool, self._line, request, self._retried)
        self._asking += 1
        try:
            async with asking.answered() as answer:
                return await self._final(answer, request)
        finally:
            self._asking -= 1

    async def _final(self, answer: Answer, request: Request) -> Answered:
        """The target's answer once it is on the disk; what is not final is not kept."""
        if not answer.final:
            return self._failed(answer, request)
        self._weigh_answer(answer)
        kept = self._journal.keep(request, answer)
        try:
            place = await asyncio.shield(kept)
        except asyncio.CancelledError:
            kept.add_done_callback(lambda done: self._kept_for_nobody(request.key, done))
            raise
        except AssayError as error:
            return self._failed(refusal(507, "disk_full", str(error)))
        return Answered(answer, request.key, place)

    def _kept_for_nobody(self, key: str, kept: asyncio.Future[Place]) -> None:
        if not kept.cancelled() and kept.exception() is None:
            self._journal.give_back(key, kept.result())

    async def _told(self, request: Request) -> Answer:
        """What the first endpoint that can be reached says; it takes no slot, and is not kept."""
        why = ""
        for door in self._pool.doors:
            try:
                async with asyncio.timeout(TOLD_SECONDS):
                    answer, _ = await exchange(self._connections, door, request)
            except (httpx.HTTPError, TimeoutError) as error:
                why = f"{door.endpoint.base_url} does not answer: {error or type(error).__name__}"
            else:
                return answer
        return refusal(502, "upstream_error", why)

    def _failed(self, answer: Answer, request: Request | None = None) -> Answered:
        if request is not None:
            self._given_up[request.key] = answer
            if len(self._given_up) > MOST_GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]
        self._count(errors=1)
        self._events("request-failed", {"job": self.job, "status": answer.status})
        return Answered(answer)

    def _retried(self, kind: str, fields: Mapping[str, object]) -> None:
        if kind == "request-retried":
            self._count(retries=1)
        self._events(kind, {"job": self.job, "target": self._pool.target.name, **fields})

    def _weigh_answer(self, answer: Answer) -> None:
        counts = (answer.prompt_tokens, answer.completion_tokens)
        if answer.good and counts == (None, None):
            if not self._spent.uncounted:
                self._events("usage-missing", {"job": self.job, "target": self._pool.target.name})
            self._count(uncounted=1)
        self._count(prompt_tokens=counts[0] or 0, completion_tokens=counts[1] or 0)
        self._weigh()

    def _weigh(self) -> None:
        if self._budget.tokens is not None and self._spent.tokens >= self._budget.tokens:
            if not self.exhausted.is_set():
                self._events("budget-exhausted", {"job": self.job, "tokens": self._spent.tokens})
            self.exhausted.set()

    def _count(self, **more: int) -> None:
        self._spent = replace(
            self._spent, **{name: getattr(self._spent, name) + value for name, value in more.items()}
        )

    async def close(self) -> None:
        """End what is in flight, write what is on its way into the journal, and close; once is enough."""
        if self._closed:
            return
        self._closed = True
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)
        await self._journal.close()
        self._pool.leave(self._line)
        self._on_closed(self.job)
        spent = dataclasses.asdict(self._spent)
        self._events("lane-closed", {"job": self.job, "spent": spent, "unclaimed": self._journal.unclaimed})
