"""A stand-in for a Docker engine: its HTTP API over a local socket, as far as looking at containers goes."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

IMAGE = "sha256:" + "1f" * 32
STARTED = "2026-08-01T10:00:00.5Z"


@dataclass
class Served:
    """A container: `ports` are (address, port on the host, protocol)."""

    name: str
    ports: list[tuple[str, int, str]]
    status: str = "running"
    started: str = STARTED
    restarts: int = 0
    image: str = IMAGE

    @property
    def id(self) -> str:
        return self.name.encode().hex().ljust(64, "0")

    def listed(self) -> dict[str, Any]:
        ports = [
            {"IP": address, "PrivatePort": 8000, "PublicPort": port, "Type": kind}
            for address, port, kind in self.ports
        ]
        return {"Id": self.id, "Names": [f"/{self.name}"], "Ports": ports, "State": self.status}

    def inspected(self) -> dict[str, Any]:
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Image": self.image,
            "Config": {"Image": "server:latest", "Env": []},
            "State": {"Status": self.status, "StartedAt": self.started},
            "RestartCount": self.restarts,
        }


@dataclass
class Engine:
    """The engine; `look` is called with each request's path, before it is answered."""

    path: Path
    containers: list[Served]
    look: Callable[[str], None] = lambda path: None
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __enter__(self) -> Engine:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: object) -> None:
                return

            def address_string(self) -> str:
                return "local"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                path = parts.path.partition("/v1.41")[2] or parts.path
                outer.asked.append(("GET", path))
                outer.look(path)
                value = outer.answer(path, parse_qs(parts.query))
                body = json.dumps(
                    value if value is not None else {"message": f"no such thing: {path}"}
                ).encode()
                self.send_response(200 if value is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                outer.asked.append(("POST", self.path))
                self.send_error(500)

            def do_DELETE(self) -> None:
                outer.asked.append(("DELETE", self.path))
                self.send_error(500)

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(self.path), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        return self

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path == "/version":
            return {"Version": "20.10", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}
        if path == "/containers/json":
            wanted = json.loads(query["filters"][0])["status"]
            return [each.listed() for each in self.containers if each.status in wanted]
        parts = path.strip("/").split("/")
        if parts[0] == "containers":
            found = (each for each in self.containers if parts[1] in (each.id, each.name))
            return next((each.inspected() for each in found), None)
        if parts[0] == "images":
            return {"Id": parts[1], "RepoDigests": ["registry.example/server@sha256:" + "2e" * 32]}
        return None

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.path.unlink()

    @property
    def variables(self) -> dict[str, str]:
        """What makes a command look here."""
        return {"DOCKER_HOST": f"unix://{self.path}"}
