"""Streams completions from an OpenAI-style server with as little of a client as will do, and times them.

Contract: one thread, plain sockets. A client library's work for each event is taken from the cores that the
engine computes on, and would be measured as the server's. TTFT is from the request's last byte handed to
the kernel to the first event with a choice; decode is (tokens - 1) / (last event - first event).
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CHOICE = b'"choices":[{'
_CHOICES_SPACED = b'"choices": [{'
STALL_S = 120.0


class StreamError(Exception):
    """The server refused a request, or ended a stream early; the message has its words."""


@dataclass(frozen=True)
class Stream:
    """One answer.

    Attributes:
        tokens: Generated, by the server's own count.
        sent_s: Monotonic time at which the request was sent.
        first_s: Of the first event with a choice.
        last_s: Of the last one.
    """

    tokens: int
    sent_s: float
    first_s: float
    last_s: float

    @property
    def ttft_s(self) -> float:
        """Seconds from the request to its first token."""
        return self.first_s - self.sent_s

    @property
    def tokens_per_s(self) -> float:
        """Decode speed."""
        return (self.tokens - 1) / (self.last_s - self.first_s)


class _Open:
    """A stream under way."""

    def __init__(self, port: int, body: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._request = head.encode() + body
        self.received = bytearray()
        self.sent_s = 0.0
        self.first_s: float | None = None
        self.last_s = 0.0

    def send(self) -> None:
        """Hand the request to the kernel."""
        self.socket.sendall(self._request)
        self.sent_s = time.perf_counter()

    def take(self) -> bool:
        """Read what is there; whether the stream goes on."""
        data = self.socket.recv(1 << 16)
        if not data:
            return False
        if _CHOICE in data or _CHOICES_SPACED in data:
            self.last_s = time.perf_counter()
            if self.first_s is None:
                self.first_s = self.last_s
        self.received += data
        return True

    def finished(self) -> Stream:
        """What it was."""
        self.socket.close()
        text = self.received.decode("utf-8", "replace")
        events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        usage = json.loads(events[-1]).get("usage") if events else None
        if self.first_s is None or not usage or "data: [DONE]" not in text:
            raise StreamError(f"the stream ended early: {text[-500:]}")
        return Stream(int(usage["completion_tokens"]), self.sent_s, self.first_s, self.last_s)


def streams(port: int, bodies: Sequence[Mapping[str, object]]) -> list[Stream]:
    """Ask for all of them at once and read until the last has ended.

    Raises:
        StreamError: one was refused or ended early, or none brought anything for two minutes.
    """
    full = [{**body, "stream": True, "stream_options": {"include_usage": True}} for body in bodies]
    under_way = [_Open(port, json.dumps(body).encode()) for body in full]
    with selectors.DefaultSelector() as selector:
        for each in under_way:
            selector.register(each.socket, selectors.EVENT_READ, each)
        for each in under_way:
            each.send()
        while selector.get_map():
            ready = selector.select(STALL_S)
            if not ready:
                raise StreamError(f"nothing came for {STALL_S:.0f} s")
            for key, _ in ready:
                if not key.data.take():
                    selector.unregister(key.fileobj)
    return [each.finished() for each in under_way]


def together(found: Sequence[Stream]) -> float:
    """Tokens a second of concurrent streams: all but each one's first / last event - first event of any."""
    tokens = sum(stream.tokens - 1 for stream in found)
    return tokens / (max(stream.last_s for stream in found) - min(stream.first_s for stream in found))
