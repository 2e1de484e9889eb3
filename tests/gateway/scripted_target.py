"""A target whose every answer a test scripts, down to the bytes and the moment its connection breaks.

It counts what is in flight as a server would, and notices when its client goes away.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@dataclass(frozen=True)
class Asked:
    """A request as it came; `number` counts from 0 in the order of coming."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer.

    Attributes:
        status: HTTP's.
        body: Its bytes.
        headers: Beside the length.
        held: Waited for before anything is sent.
        chunked: Send the body so.
        cut: Break the connection before the end.
        silent: Break the connection before the beginning.
        closing: Close the connection after the answer, without a word of it.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    held: threading.Event | None = None
    chunked: bool = False
    cut: bool = False
    silent: bool = False
    closing: bool = False


def completion(text: str, usage: Mapping[str, int] | None = USAGE) -> bytes:
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    told = {} if usage is None else {"usage": usage}
    head = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice], **told}).encode()


def streamed(text: str, usage: Mapping[str, int] | None = USAGE, done: bool = True) -> bytes:
    """A chat completion as events."""
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
        for word in text.split(" ")
    ]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if usage is not None:
        events.append({**head, "choices": [], "usage": usage})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


EVENT_STREAM = {"Content-Type": "text/event-stream"}


def echo(asked: Asked) -> Reply:
    """Answer with the last message, streamed or whole as it is asked."""
    body = asked.json
    text = body["messages"][-1]["content"]
    if body.get("stream"):
        return Reply(body=streamed(text), headers=EVENT_STREAM, chunked=True)
    return Reply(body=completion(text))


class Upstream:
    """The server; `script` is asked for the reply to each request."""

    def __init__(self, script: Callable[[Asked], Reply] = echo) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.in_flight = self.most_in_flight = self.left = 0
        self.lock = threading.Condition()

    def __enter__(self) -> Upstream:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            timeout = 60

            def log_message(self, *arguments: object) -> None:
                return

            def do_GET(self) -> None:
                self.serve(b"")

            def do_POST(self) -> None:
                self.serve(self.rfile.read(int(self.headers["Content-Length"])))

            def serve(self, body: bytes) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                with outer.lock:
                    asked = Asked(len(outer.asked), self.command, self.path, headers, body)
                    outer.asked.append(asked)
                    outer.in_flight += 1
                    outer.most_in_flight = max(outer.most_in_flight, outer.in_flight)
                    outer.lock.notify_all()
                try:
                    reply = outer.script(asked)
                    there = reply.held is None or self.wait(reply.held)
                finally:
                    # Before the answer goes out: from its last byte on, the client may ask the next.
                    with outer.lock:
                        outer.in_flight -= 1
                if there:
                    self.answer(reply)
                    return
                with outer.lock:
                    outer.left += 1
                    outer.lock.notify_all()

            def wait(self, held: threading.Event) -> bool:
                """Whether the client was still there when it was let go."""
                while not held.wait(0.01):
                    ready, _, _ = select.select([self.connection], [], [], 0)
                    if ready and not self.connection.recv(1, socket.MSG_PEEK):
                        self.close_connection = True
                        return False
                return True

            def answer(self, reply: Reply) -> None:
                if reply.silent:
                    self.hang_up()
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                body = reply.body[: len(reply.body) // 2] if reply.cut else reply.body
                if reply.chunked:
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    size = max(1, len(body) // 3)
                    for start in range(0, len(body), size):
                        part = body[start : start + size]
                        self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                    self.wfile.write(b"" if reply.cut else b"0\r\n\r\n")
                else:
                    self.send_header("Content-Length", str(len(reply.body)))
                    self.end_headers()
                    self.wfile.write(body)
                self.wfile.flush()
                if reply.cut or reply.closing:
                    self.hang_up()

            def hang_up(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *arguments: object) -> None:
                return

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def wait_for(self, state: Callable[[], bool]) -> None:
        """Wait until the state is reached, or fail."""
        with self.lock:
            assert self.lock.wait_for(state, 30)


def numbered(asked: Asked) -> Reply:
    """An answer that no other request has got: as sampling gives."""
    return Reply(body=completion(f"{asked.json['messages'][0]['content']}#{asked.number}"))
