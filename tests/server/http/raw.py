"""Clients that speak to a server byte by byte, as no client library would."""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.server.http.running import Command, Toy

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def post(path: str, body: bytes, *headers: str, length: int | None = None) -> bytes:
    """A whole request."""
    lines = (
        *(f"POST {path} HTTP/1.1", "Host: toy", "Content-Type: application/json"),
        *(f"Content-Length: {len(body) if length is None else length}", *headers),
    )
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def asked(words: str = "x", **parameters: object) -> bytes:
    """The body of a chat."""
    messages = [{"role": "user", "content": words}]
    return json.dumps({"model": "toy", "messages": messages, "temperature": 0, **parameters}).encode()


@dataclass(frozen=True)
class Reply:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, object]:
        """OpenAI's error fields; every refusal has them."""
        assert self.headers["content-type"] == "application/json", self
        found = json.loads(self.body)["error"]
        assert found.keys() >= {"message", "type", "param", "code"}
        assert found["message"]
        return dict(found)


class Line:
    """One connection; small windows make it a client that leaves its answers lying."""

    def __init__(self, toy: Toy | Command, *, receive_bytes: int | None = None, seconds: float = 20) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(seconds)
        self.socket.connect(("127.0.0.1", int(toy.url.rpartition(":")[2])))
        self._left = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self) -> Reply:
        """Read one response with a length or in chunks."""
        head = self._until(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._until(b"\r\n"), 16):
                body += self._exactly(size + 2)[:-2]
            self._exactly(2)
        else:
            body = self._exactly(int(headers.get("content-length", 0)))
        return Reply(int(first.split()[1]), headers, body)

    def ended(self) -> bool:
        """Whether the server closed, with nothing more to read."""
        try:
            return self._left == b"" == self.socket.recv(1)
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        """Vanish: the other side sees a reset and no end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _until(self, end: bytes) -> bytes:
        while end not in self._left:
            self._more()
        found, _, self._left = self._left.partition(end)
        return found + end

    def _exactly(self, size: int) -> bytes:
        while len(self._left) < size:
            self._more()
        found, self._left = self._left[:size], self._left[size:]
        return found

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        assert data, f"the connection ended after {self._left!r}"
        self._left += data

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def open_files() -> int:
    """File descriptors of this process, in which the toy server runs too."""
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
