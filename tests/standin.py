"""A stand-in for an OpenAI-compatible server whose faults a test can script.

It speaks the chat protocol on loopback, streamed or whole as it is asked, and ends with the test. It exists
for faults and scripted answers alone; what a good server does is tested with the real one.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@dataclass(frozen=True)
class Reply:
    """What one chat request gets: an HTTP status, or a text with a finish reason, or a command for `bash`.

    A whole answer can have other calls, each a function's name and its arguments, and thinking.
    """

    text: str = "<answer>1</answer>"
    bash: str | None = None
    calls: Sequence[tuple[str, object]] = ()
    thought: str | None = None
    finish_reason: str = "stop"
    status: int = 200
    delay_s: float = 0.0


@dataclass
class StandIn:
    """The server; `reply` is asked with the number of the request (from 0) and its body.

    `identity`, where there is one, answers `/identity` with the number of that request; `documents` answer
    other paths, `/v1/models` too, as JSON values or as bytes. While it is `loading` it
    answers 503 to each question.
    """

    reply: Callable[[int, dict[str, Any]], Reply] = lambda number, body: Reply()
    key: str | None = None
    model: str = "stand-in"
    address: tuple[str, int] = ("127.0.0.1", 0)
    identity: Callable[[int], dict[str, Any]] | None = None
    documents: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)
    identified: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    loading: bool = False

    def __enter__(self) -> StandIn:
        outer = self
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                return

            def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def authorised(self) -> bool:
                if outer.key is None or self.headers.get("Authorization") == f"Bearer {outer.key}":
                    return True
                self.answer(401, b'{"error":{"message":"wrong key","type":"authentication_error"}}')
                return False

            def do_GET(self) -> None:
                if outer.loading:
                    self.answer(503, b'{"error":{"message":"Loading model","type":"unavailable_error"}}')
                elif self.path in outer.documents:
                    if self.authorised():
                        value = outer.documents[self.path](outer.told[self.path])
                        outer.told[self.path] += 1
                        body = value if isinstance(value, bytes) else json.dumps(value).encode()
                        self.answer(404 if value is None else 200, body)
                elif self.path == "/v1/models" and self.authorised():
                    self.answer(200, json.dumps({"object": "list", "data": [{"id": outer.model}]}).encode())
                elif self.path == "/identity" and outer.identity is not None and self.authorised():
                    document = outer.identity(outer.identified)
                    outer.identified += 1
                    self.answer(200, json.dumps(document).encode())
                elif self.path != "/v1/models":
                    self.answer(404, b"{}")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self.authorised():
                    return
                with lock:
                    number = len(outer.requests)
                    outer.requests.append(body)
                    outer.in_flight += 1
                    outer.most_in_flight = max(outer.most_in_flight, outer.in_flight)
                try:
                    reply = outer.reply(number, body)
                    if reply.delay_s:
                        threading.Event().wait(reply.delay_s)
                    if reply.status != 200:
                        self.answer(
                            reply.status, b'{"error":{"message":"scripted fault","type":"server_error"}}'
                        )
                        return
                    if body.get("stream"):
                        self.answer(200, stream(outer.model, reply), "text/event-stream")
                    else:
                        self.answer(200, whole(outer.model, reply))
                except (BrokenPipeError, ConnectionResetError):
                    return
                finally:
                    with lock:
                        outer.in_flight -= 1

        self.server = ThreadingHTTPServer(self.address, Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"


def stream(model: str, reply: Reply) -> bytes:
    """A whole streamed answer: role, text or a call of the tool `bash`, finish reason, usage, end."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
        {"index": 0, "delta": {"content": reply.text}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": reply.finish_reason},
    ]
    if reply.bash is not None:
        function = {"name": "bash", "arguments": json.dumps({"command": reply.bash})}
        call = {"index": 0, "id": "call-1", "type": "function", "function": function}
        choices[1] = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
        choices[2] = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    chunks: list[dict[str, Any]] = [{**head, "choices": [choice]} for choice in choices]
    chunks.append({**head, "choices": [], "usage": USAGE})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return ("".join(lines) + "data: [DONE]\n\n").encode()


def whole(model: str, reply: Reply) -> bytes:
    """A whole answer in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    finish = reply.finish_reason
    if reply.thought is not None:
        message["reasoning_content"] = reply.thought
    if reply.calls:
        functions = [{"name": name, "arguments": json.dumps(given)} for name, given in reply.calls]
        message["tool_calls"] = [
            {"id": f"call-{number}", "type": "function", "function": function}
            for number, function in enumerate(functions)
        ]
        finish = "tool_calls" if finish == "stop" else finish
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model}
    return json.dumps({**head, "choices": [choice], "usage": USAGE}).encode()
