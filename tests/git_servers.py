"""Git over loopback: its own daemon, smart HTTP through its own backend, and plain static files."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

WAIT_S = 30.0


def programs() -> Path:
    """Where Git keeps its inner programs."""
    found = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


@contextmanager
def daemon(folder: Path) -> Iterator[str]:
    """Git's own daemon over the repositories in a folder; yields its base address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = subprocess.Popen(
        [
            programs() / "git-daemon",
            "--export-all",
            f"--base-path={folder}",
            "--listen=127.0.0.1",
            f"--port={port}",
            "--reuseaddr",
        ],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port, child)
        yield f"git://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(WAIT_S)


def wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    """Wait until something listens."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        assert child.poll() is None, "the daemon did not start"
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("the daemon does not listen")


class Smart(BaseHTTPRequestHandler):
    """Hands each request to git-http-backend, as a web server would."""

    root: Path
    password: str | None = None
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        """Answer the listing of references."""
        self.answer(b"")

    def do_POST(self) -> None:
        """Answer a negotiation."""
        if self.headers.get("Content-Length"):
            self.answer(self.rfile.read(int(self.headers["Content-Length"])))
            return
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.answer(body)

    def answer(self, body: bytes) -> None:
        """What the backend says, or that a password is wanted."""
        if self.password is not None:
            wanted = base64.b64encode(f"user:{self.password}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {wanted}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="mirror"')
                self.end_headers()
                return
        parts = urlsplit(self.path)
        child = subprocess.run(
            [programs() / "git-http-backend"],
            input=body,
            env={
                "PATH": os.environ["PATH"],
                "HOME": "/nonexistent",
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_PROJECT_ROOT": str(self.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REQUEST_METHOD": self.command,
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            },
            capture_output=True,
            check=False,
        )
        head, _, content = child.stdout.partition(b"\r\n\r\n")
        lines = [line.partition(": ") for line in head.decode("latin-1").split("\r\n")]
        status = next((value for name, _, value in lines if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, _, value in lines:
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Static(SimpleHTTPRequestHandler):
    """Plain files."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """An HTTP server on a free port of loopback; yields its base address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WAIT_S)


@contextmanager
def smart_http(folder: Path, password: str | None = None) -> Iterator[str]:
    """Smart HTTP over the repositories in a folder; with a password, only for whoever gives it."""
    with serving(type("Server", (Smart,), {"root": folder, "password": password})) as address:
        yield address


@contextmanager
def static_http(folder: Path) -> Iterator[str]:
    """The same folder as static files; its repositories are readied for that."""
    for bare in folder.rglob("*.git"):
        subprocess.run(
            ["git", "--git-dir", str(bare), "update-server-info"],
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"},
            check=True,
        )
    with serving(partial(Static, directory=str(folder))) as address:
        yield address
