"""What the stand-ins for a hub and for a bucket share: bodies with ranges, faults a test can script, a log.

A `Fault` is used up by the first request that it is meant for. Servers listen on loopback and end with the
test.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 1 << 16


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request.

    Attributes:
        status: Answered instead of what was asked for, when it is not 0.
        headers: Sent along.
        cut_at: Bytes of the body after which the connection is cut, when it is not None.
        ends_at: Bytes after which the body ends as if that were all of it.
        whole: Answer 200 with everything, whatever range was asked for.
        part: Answer 206 with the part that begins here, whatever range was asked for.
        body: Send these bytes instead of the right ones.
        wait: Wait for this event amid the body: after `cut_at` bytes, or else after half of them.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    ends_at: int | None = None
    whole: bool = False
    part: int | None = None
    body: bytes | None = None
    wait: threading.Event | None = None


@dataclass(frozen=True)
class Request:
    """One request as a stand-in saw it; the headers' names in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]


class Served(ThreadingHTTPServer):
    """A server on a free port of loopback; a context that ends with it."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away amid a body is what some tests are about."""

    def __enter__(self) -> Served:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class Speaker(BaseHTTPRequestHandler):
    """A handler that can send bodies as hosts of files do."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""

    def answer(self) -> None:
        """Answer one request: the stand-in's part."""
        raise AssertionError(f"{type(self).__name__} answers nothing")

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def request_seen(self) -> Request:
        """The request, for a stand-in's list."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(self.command, self.path, headers)

    def send(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer; a HEAD gets the headers alone."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, data: bytes, headers: Mapping[str, str], fault: Fault) -> None:
        """Send a file or the part of it that was asked for, with what goes wrong."""
        data = fault.body if fault.body is not None else data
        start = 0
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and asked.endswith("-") and not fault.whole:
            start = int(asked[6:-1])
            if start >= len(data):
                self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
        start = fault.part if fault.part is not None else start
        part = data[start : fault.ends_at]
        self.send_response(206 if start or fault.part is not None else 200)
        for name, value in {"Accept-Ranges": "bytes", **headers, **fault.headers}.items():
            self.send_header(name, value)
        if start or fault.part is not None:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "HEAD":
            return
        amid = len(part) // 2 if fault.cut_at is None else max(0, fault.cut_at - start)
        with contextlib.suppress(ConnectionError):
            self.wfile.write(part[:amid])
            if fault.wait is not None:
                fault.wait.wait(60)
            if fault.cut_at is None:
                self.wfile.write(part[amid:])
            else:
                self.close_connection = True
