"""`python -m server` that writes down each question as it comes and as its answer has gone out.

Run as `python -m tests.coordinator.counted_server MODEL --port 0 …`; the lines go to the file that `COUNTED`
names, and each says how many questions the server then has in hand. It is the server itself that counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server import __main__ as command

COUNTED = "COUNTED"
ASKED = "/v1/chat/completions"


class Counted:
    """An application around the server's, which counts questions.

    Args:
        app: The server's.
        path: Where the lines go.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.app = app
        self.handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != ASKED:
            await self.app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        digest = hashlib.sha256(body).hexdigest()
        read, status = [False], [0]

        async def again() -> Message:
            if read[0]:
                return await receive()
            read[0] = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        self.in_flight += 1
        self.line("asked", digest)
        try:
            await self.app(scope, again, watched)
        finally:
            self.in_flight -= 1
            self.line("answered", digest, status=status[0])

    def line(self, kind: str, digest: str, **more: Any) -> None:
        """Write a line."""
        value = {"kind": kind, "digest": digest, "in_flight": self.in_flight, **more}
        os.write(self.handle, (json.dumps(value) + "\n").encode())


if __name__ == "__main__":
    create = command.create_app
    vars(command)["create_app"] = lambda service: Counted(create(service), os.environ[COUNTED])
    sys.exit(command.main())
