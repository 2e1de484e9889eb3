"""HTTP/1.1 on a connection, with an end to every wait and to every size.

uvicorn parses and frames; what it leaves without a bound has one here. A client that does not finish a
request's head, does not read its answer, or goes on sending after it was answered holds a connection for a
while and never longer; a head past a size is refused; and what is no HTTP at all is refused in the same
JSON form as everything else. A client that vanishes ends all of its requests, those that it had sent ahead
as well. (The wait for a body is in server/body.py.)
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from server.errors import ApiError

# Longer than client libraries keep an idle connection, so the client closes first and loses no request.
KEEP_ALIVE_SECONDS = 120
CLOSE_SECONDS = 5  # for connections to close once nothing is under way
# The parser takes no body behind this header, which some clients send with every first request in the hope of
# HTTP/2; a server is free to ignore it.
UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client may take, and how much it may say before its body."""

    head_s: float = 30  # from a request's first byte, or the connection, to the end of its head
    stall_s: float = 60  # with more than the write buffer unread
    linger_s: float = 5  # for the rest of a body whose request is answered
    head_bytes: int = 1 << 16


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol over httptools, bounded."""

    patience: ClassVar[Patience] = Patience()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Serve one connection; the arguments are uvicorn's."""
        super().__init__(*arguments, **named)
        self._slow: asyncio.TimerHandle | None = None  # ends the connection: head, or rest of a body
        self._stalled: asyncio.TimerHandle | None = None  # ends the connection: unread answer
        self._in_head = True
        self._head_bytes = 0
        self._named_bytes = 0  # of them in headers that are complete
        self._whole = True  # no part of a request's body is still to come
        self._answering: RequestResponseCycle | None = None
        self._wait(self.patience.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request of this connection that its client is gone."""
        self._wait(None)
        self.resume_writing()
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in (self._answering, *waiting):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, as long as its head stays within the bound."""
        if self._in_head:
            if self._head_bytes == 0 and self._slow is None:
                self._wait(self.patience.head_s)
            self._head_bytes += len(data)
            if UPGRADE.search(data):
                head, end, rest = data.partition(b"\r\n\r\n")
                data = UPGRADE.sub(rb"\r\nrefused-upgrade:", head) + end + rest
        super().data_received(data)
        if self._in_head and self._head_bytes > self.patience.head_bytes:
            self._refuse(_head_too_large(self.patience.head_bytes))

    def on_message_begin(self) -> None:
        """Count a new head from nothing; what stands before it in the same packet was another's."""
        super().on_message_begin()
        self._named_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or stop parsing when there are too many bytes of them."""
        self._named_bytes += len(name) + len(value)
        if self._named_bytes > self.patience.head_bytes:
            self._head_bytes = self._named_bytes
            raise httptools.HttpParserError("the head is too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request: its head came in time."""
        self._in_head = self._whole = False
        self._head_bytes = 0
        self._wait(None)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Await the next head; its time runs from its first byte."""
        self._in_head = self._whole = True
        self._wait(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Give a client that was answered early a moment to stop sending."""
        if not self._whole and not self.pipeline:
            self._wait(self.patience.linger_s)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Give the client a while to read."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.patience.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that clock: the client reads."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        if self._head_bytes > self.patience.head_bytes:
            self._refuse(_head_too_large(self.patience.head_bytes))
        else:
            self._refuse(ApiError(400, "this is no HTTP/1.1 request", code="invalid_http"))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _wait(self, seconds: float | None) -> None:
        if self._slow is not None:
            self._slow.cancel()
        self._slow = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._slow = None
        if self._in_head and self._head_bytes:
            self._refuse(ApiError(408, "the request's head did not come in time", code="request_timeout"))
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Say why and close; only close where the words would seem to answer another request."""
        if self.transport.is_closing():
            return
        answering = self._answering
        begun = answering is not None and not answering.response_complete
        # A body that is no HTTP is answered in its request's place; what follows a request must not be.
        unanswered = begun and answering is not None and not answering.response_started and not self._whole
        if not begun or (unanswered and not self.pipeline):
            body = json.dumps(error.body()).encode()
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
            self.transport.write(STATUS_LINE[error.status] + head.encode() + b"\r\n\r\n" + body)
        self.transport.close()


def _head_too_large(most: int) -> ApiError:
    return ApiError(431, f"the request's head is larger than {most} bytes", code="head_too_large")


def configuration(app: ASGIApp, patience: Patience | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration for serving `app`, in the command and in tests alike."""

    class Protocol(PatientProtocol):
        pass

    if patience is not None:
        Protocol.patience = patience
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        http=Protocol,
        loop="uvloop",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
