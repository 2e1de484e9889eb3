"""One request at a target, asked again while what fails may pass: the only retries there are.

Passing: no connection, no whole answer (cut, not in time, no JSON), 408, 429 and every 5xx, and an error with
status 200. Each repetition counts against the target's `retries`, but for two that cost it nothing: the
other endpoints of a pool are tried when one cannot be reached, and a kept-alive connection that its server
closed in the same moment is replaced. The slot goes back while a repetition waits, and with an answer only
once that is kept: what a kill can lose is never more than the slots.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from assay.data.patience import retry_after_s
from assay.gateway.connections import Connections
from assay.gateway.message import ANSWER_HEADERS, Answer, Request, refusal
from assay.gateway.pool import Door, Line, Pool, RestingError, Slot
from assay.gateway.reading import Reading, read

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
MAXIMUM_REST_S = 7 * 86400.0  # no clock asks for more in earnest
MAXIMUM_BYTES = 1 << 30  # of one answer
ASIDE_BYTES = 256 << 10  # a longer answer is read in a thread, not in the loop
NOTICED_S = 0.5  # within which a server notices that its client is gone
PASSING = frozenset({408, 429})
# Moments that the HTTP library tells of: a connection is made, an answer has begun.
CONNECTING, BEGUN = "connection.connect_tcp.started", "http11.receive_response_headers.complete"
CUT = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)


class PassingError(Exception):
    """A failure that may pass.

    Args:
        answer: What the child gets, should it not.
        counts: Whether its repetition counts.
        asked_s: How long the endpoint asked to be left alone.
    """

    def __init__(self, answer: Answer, why: str, counts: bool = True, asked_s: float | None = None) -> None:
        super().__init__(why)
        self.answer = answer
        self.counts = counts
        self.asked_s = asked_s


@dataclass
class Asking:
    """A request on its way.

    Attributes:
        connections: To every target.
        pool: Of the target.
        line: Of the lane.
        request: The child's.
        told: Told of each repetition: kind and fields of an event.
    """

    connections: Connections
    pool: Pool
    line: Line
    request: Request
    told: Callable[[str, Mapping[str, object]], None]

    def __post_init__(self) -> None:
        """Take a place in the order of coming."""
        self._ticket = self.pool.ticket()
        self._counted = 0
        self._unreached: set[str] = set()
        self._renewed = False
        self._slot: Slot | None = None
        self._wait = wait_exponential_jitter(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S, jitter=FIRST_WAIT_S)

    @contextlib.asynccontextmanager
    async def answered(self) -> AsyncIterator[Answer]:
        """The target's answer: a final one, which holds its slot in this block, or the last that failed."""
        try:
            yield await self._answer()
        finally:
            if self._slot is not None:
                self._slot.release()

    async def _answer(self) -> Answer:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(PassingError),
            stop=self._enough,
            wait=self._pause,
            before_sleep=self._say,
            reraise=True,
        )
        try:
            return await retrying(self._attempt)
        except PassingError as error:
            return error.answer

    def _enough(self, state: RetryCallState) -> bool:
        error = _error(state)
        if isinstance(error, PassingError):
            self._counted += error.counts
            longest = self.pool.target.request.longest_wait_seconds
            if error.asked_s is not None and error.asked_s > longest:
                return True
        return self._counted > self.pool.target.request.retries

    def _pause(self, state: RetryCallState) -> float:
        error = _error(state)
        # Where its endpoint rests, the slot is what is waited for.
        passes = isinstance(error, PassingError) and error.counts and error.asked_s is None
        return self._wait(state) if passes else 0.0

    def _say(self, state: RetryCallState) -> None:
        wait_s = state.next_action.sleep if state.next_action else 0.0
        self.told("request-retried", {"why": str(_error(state)), "wait_s": round(wait_s, 3)})

    async def _attempt(self) -> Answer:
        try:
            slot = await self.pool.slot(self.line, self._ticket)
        except RestingError as error:
            return refusal(
                429, "rate_limit_exceeded", str(error), {"retry-after": str(int(error.seconds) + 1)}
            )
        try:
            answer = await self._at(slot)
        except asyncio.CancelledError:
            slot.release(NOTICED_S)
            raise
        except BaseException:
            slot.release()
            raise
        self._slot = slot
        return answer

    async def _at(self, slot: Slot) -> Answer:
        door = slot.door
        seen: set[str] = set()

        async def trace(name: str, info: Mapping[str, Any]) -> None:
            if name in (CONNECTING, BEGUN):
                seen.add(name)

        limit = self.pool.target.request.timeout_seconds
        url = door.endpoint.base_url
        try:
            async with asyncio.timeout(limit):
                found, asked_s = await exchange(self.connections, door, self.request, trace)
        except TimeoutError:
            slot.release(NOTICED_S)
            why = f"{url} gave no whole answer within {limit:g} s"
            raise PassingError(refusal(504, "timeout", why), why) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self._unreached.add(url)
            others = any(other.endpoint.base_url not in self._unreached for other in self.pool.doors)
            raise self._failed(door, error, "cannot be reached", counts=not others) from error
        except CUT as error:
            if not (seen or self._renewed):
                # A connection that had been kept too long says nothing of its server.
                self._renewed = True
                why = f"{url} closed a connection that was kept"
                raise PassingError(refusal(502, "upstream_error", why), why, counts=False) from error
            raise self._failed(door, error, "broke off") from error
        except httpx.HTTPError as error:
            raise self._failed(door, error, "gave no answer that can be read") from error
        return await self._judged(door, found, asked_s)

    def _failed(self, door: Door, error: httpx.HTTPError, how: str, counts: bool = True) -> PassingError:
        why = f"{door.endpoint.base_url} {how}: {error or type(error).__name__}"
        if door.failed():
            self.told("endpoint-failed", {"endpoint": door.endpoint.base_url, "why": why})
        return PassingError(refusal(502, "upstream_error", why), why, counts)

    async def _judged(self, door: Door, answer: Answer, asked_s: float | None) -> Answer:
        """The answer when it is one; PassingError when it may be another next time."""
        url = door.endpoint.base_url
        if answer.status in PASSING or answer.status >= 500:
            why = f"{url} answered {answer.status}"
            if asked_s is not None:
                door.rest(asked_s)
                self.told("endpoint-resting", {"endpoint": url, "seconds": round(asked_s, 3)})
            elif answer.status >= 500 and door.failed():
                self.told("endpoint-failed", {"endpoint": url, "why": why})
            raise PassingError(answer, why, asked_s=asked_s)
        if door.worked():
            self.told("endpoint-works", {"endpoint": url})
        if not answer.good or answer.headers.get("content-encoding"):
            return answer
        reading = await _read(answer)
        if reading.fault:
            why = f"{url} answered {answer.status}, but {reading.fault}"
            raise PassingError(refusal(502, "upstream_error", why), why)
        return replace(
            answer, prompt_tokens=reading.prompt_tokens, completion_tokens=reading.completion_tokens
        )


async def exchange(
    connections: Connections, door: Door, request: Request, trace: Callable[..., Any] | None = None
) -> tuple[Answer, float | None]:
    """Ask one endpoint once.

    Returns:
        The whole answer, without the endpoint's key; and how long it asks to be left alone.

    Raises:
        httpx.HTTPError: there is no whole answer.
    """
    endpoint = door.endpoint
    begin = time.monotonic()
    with connections.lend(endpoint.base_url) as client:
        async with client.stream(
            request.method,
            endpoint.base_url.removesuffix("/v1") + request.path,
            headers=request.onward(endpoint.key),
            content=request.body or None,
            extensions={"trace": trace} if trace else None,
        ) as response:
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAXIMUM_BYTES:
                    raise httpx.DecodingError(
                        f"it is longer than {MAXIMUM_BYTES} bytes", request=response.request
                    )
    headers = {name: response.headers[name] for name in ANSWER_HEADERS if name in response.headers}
    # httpx has undone these; any other stays, and its name with it.
    if headers.get("content-encoding", "identity").strip().lower() in {"identity", "gzip", "deflate"}:
        headers.pop("content-encoding", None)
    answer = Answer(
        response.status_code,
        headers,
        bytes(body),
        endpoint=endpoint.base_url,
        seconds=round(time.monotonic() - begin, 6),
    )
    asked_s = retry_after_s(response.headers)
    asked_s = None if asked_s is None else min(asked_s, MAXIMUM_REST_S)
    return answer.without(endpoint.key), asked_s


async def _read(answer: Answer) -> Reading:
    kind = answer.headers.get("content-type", "")
    if len(answer.body) < ASIDE_BYTES:
        return read(kind, answer.body)
    return await asyncio.to_thread(read, kind, answer.body)


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
