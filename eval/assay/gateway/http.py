"""The gateway's HTTP side: requests in, answers out, and who went away in between."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from http import HTTPStatus

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Incoming
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from assay.gateway.lane import OpenLane
from assay.gateway.message import Answer, Request, refusal

MAXIMUM_BYTES = 256 << 20  # of one request: some hold images and sounds
KEPT_ALIVE_SECONDS = 24 * 3600  # a child's idle connection is never closed under its next request
CLOSING_SECONDS = 5


class TooLargeError(Exception):
    """A request is longer than `MAXIMUM_BYTES`."""


class Front:
    """The ASGI application over the lanes that are open, by job."""

    def __init__(self, lanes: Mapping[str, OpenLane]) -> None:
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        raw: bytes = scope["raw_path"]
        _, _, rest = raw.decode("latin-1").partition("/")
        job, slash, path = rest.partition("/")
        lane = self._lanes.get(job)
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if lane is None or not slash:
            await respond(refusal(404, "not_found", "there is no such lane"), scope, receive, send)
            return
        if not lane.opens(_presented(headers)):
            await respond(refusal(401, "authentication_error", "wrong key"), scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        try:
            body = await _body(scope, receive)
        except ClientDisconnect:
            return
        except TooLargeError:
            refused = refusal(413, "too_large", f"a request may have {MAXIMUM_BYTES} bytes")
            await respond(refused, scope, receive, send)
            return
        request = Request(scope["method"], f"/{path}?{query}" if query else f"/{path}", tuple(headers), body)
        await _serve(lane, request, scope, receive, send)


async def _serve(lane: OpenLane, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer, unless the child goes away first: then what it asked is given up at once."""
    answering = lane.ask(request)
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            return
        if answering.cancelled():
            await respond(refusal(503, "lane_closed", "the lane was closed"), scope, receive, send)
        elif leaving.done():
            lane.unseen(answering.result())
        else:
            await respond(answering.result().answer, scope, receive, send)
    finally:
        answering.cancel()
        leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(scope: Scope, receive: Receive) -> bytes:
    body = bytearray()
    async for part in Incoming(scope, receive).stream():
        body += part
        if len(body) > MAXIMUM_BYTES:
            raise TooLargeError
    return bytes(body)


def _presented(headers: list[tuple[bytes, bytes]]) -> str:
    """The key that a request shows, where either protocol puts it."""
    shown = dict(headers)
    scheme, _, token = shown.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return (shown.get(b"x-api-key") or shown.get(b"api-key") or b"").decode("latin-1")


async def respond(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer. An error says that asking again is not the child's business."""
    headers = dict(answer.headers)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        headers["x-should-retry"] = "false"
    await Response(answer.body, answer.status, headers)(scope, receive, send)


class Server(uvicorn.Server):
    """uvicorn without its own signal handling, which is the coordinator's."""

    def __init__(self, front: Front) -> None:
        config = uvicorn.Config(
            front,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEPT_ALIVE_SECONDS,
            timeout_graceful_shutdown=CLOSING_SECONDS,
        )
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.ready.set()
