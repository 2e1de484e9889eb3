"""A request and its answer, as bytes with the few facts that the gateway needs of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from urllib.parse import quote

from assay.run.key import Key

# What concerns one connection and not the message, or is this side's own business.
OWN_HEADERS = frozenset(
    b"connection keep-alive te trailer transfer-encoding upgrade expect host content-length accept-encoding "
    b"proxy-authenticate proxy-authorization proxy-connection authorization x-api-key api-key cookie".split()
)
# Of an answer; cookies, dates and limits belong to the moment, and a replay has another one.
ANSWER_HEADERS = ("content-type", "content-encoding", "x-request-id")
# Answers that a request would get again: it is at fault, and not the moment, the key or the server.
SAME_AGAIN = frozenset({400, 413, 422})
REDACTED = b"***"
SECRET_CHARACTERS = 16


@dataclass(frozen=True)
class Request:
    """What a child asks.

    Attributes:
        method: "POST" or "GET".
        path: Below the lane's root, with the query, as it was sent: "/v1/chat/completions".
        headers: Names in lower case.
        body: Whole, as it was sent.
    """

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    @cached_property
    def key(self) -> str:
        """What is equal for equal requests: SHA-256 over method, path and body."""
        return sha256(f"{self.method}\n{self.path}\n".encode("latin-1") + self.body).hexdigest()

    @property
    def repeated(self) -> bool:
        """Whether a client of OpenAI's make asks it again by itself."""
        count = next((value for name, value in self.headers if name == b"x-stainless-retry-count"), b"0")
        return count.isdigit() and int(count) > 0

    def onward(self, key: Key | None) -> list[tuple[bytes, bytes]]:
        """The headers for the target: the child's, but for its connection's and its lane's own."""
        headers = [(name, value) for name, value in self.headers if name not in OWN_HEADERS]
        # What is kept and counted is the answer itself; between machines of one room nothing is gained.
        headers.append((b"accept-encoding", b"identity"))
        if key is not None:
            secret = key.reveal().encode("ascii")
            headers.append((b"authorization", b"Bearer " + secret))
            if self.path.startswith("/v1/messages"):
                headers.append((b"x-api-key", secret))
        return headers


@dataclass(frozen=True)
class Answer:
    """What a target, or the gateway in its place, answers.

    Attributes:
        status: HTTP's.
        headers: Of `ANSWER_HEADERS`.
        body: Whole.
        prompt_tokens: As the server counts them; None where it does not say.
        completion_tokens: As the server counts them; None where it does not say.
        endpoint: Who answered; empty for the gateway itself.
        seconds: From asking to the last byte, waiting for a slot and earlier tries left out.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    endpoint: str = ""
    seconds: float | None = None

    @property
    def good(self) -> bool:
        """Whether it is what was asked for."""
        return 200 <= self.status < 300

    @property
    def final(self) -> bool:
        """Whether asking again would bring no other one, but for sampling: what is kept."""
        return self.good or self.status in SAME_AGAIN

    def without(self, key: Key | None) -> Answer:
        """The answer, free of the target's key, should it repeat it.

        Keys of open servers are often words ("none", "EMPTY"), which an answer may hold by itself: from a
        good answer only what can be no word is taken.
        """
        if key is None or (self.good and len(key.reveal()) < SECRET_CHARACTERS):
            return self
        body, headers = self.body, dict(self.headers)
        for spelling in spellings(key):
            body = body.replace(spelling.encode("ascii"), REDACTED)
            headers = {name: value.replace(spelling, "***") for name, value in headers.items()}
        return (
            self
            if (body, headers) == (self.body, self.headers)
            else replace(self, body=body, headers=headers)
        )


def spellings(key: Key) -> list[str]:
    """How a key may stand in a text: as it is, in a URL, in a JSON string."""
    secret = key.reveal()
    return list(dict.fromkeys([secret, quote(secret, safe=""), json.dumps(secret)[1:-1]]))


def refusal(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """The gateway's own answer to a request that got none, in OpenAI's form."""
    error = {"message": message, "type": kind, "param": None, "code": kind}
    body = json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")
    return Answer(status, {"content-type": "application/json", **(headers or {})}, body)
