"""Servers for tests: the application over the toy engine in a thread, or the real command in a process."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from server.__main__ import bind
from server.app import create_app
from server.key import Key
from server.language import Language
from server.loading import assemble
from server.protocol import Patience, configuration
from server.scheduler import Limits
from server.service import Service
from server.speculation import Guesser
from tests.server.http.toy import TEMPLATE, ToyEngine, metadata

NAME = "toy"
FINGERPRINT = "assay-0123456789abcdef"


@dataclass(frozen=True)
class Toy:
    """A running toy server."""

    url: str
    engine: ToyEngine
    service: Service

    def metric(self, name: str) -> float:
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))

    def wait_idle(self) -> None:
        """Wait until no choice holds or waits for a slot."""
        wait_for(lambda: self.metric("assay_requests_running") == 0 == self.metric("assay_requests_waiting"))


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come about")
        time.sleep(0.01)


@contextlib.contextmanager
def toy_server(
    *,
    slots: int = 4,
    context: int = 256,
    limits: Limits | None = None,
    key: bytes | None = None,
    load: bool = True,
    template: str | None = TEMPLATE,
    patience: Patience | None = None,
    guesser: Guesser | None = None,
) -> Iterator[Toy]:
    engine = ToyEngine(slots, context)
    service = Service(Key(key) if key else None)
    if load:
        described = {"schema": "assay/identity/v1", "system_fingerprint": FINGERPRINT}
        service.served = assemble(
            NAME,
            engine,
            Language.read(metadata(template), engine.vocabulary),
            described,
            service.metrics,
            limits or Limits(),
            guesser,
        )
    listener = bind("127.0.0.1", 0)
    http = uvicorn.Server(configuration(create_app(service), patience))
    thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Toy(f"http://127.0.0.1:{listener.getsockname()[1]}", engine, service)
    finally:
        engine.gate.set()
        http.should_exit = True
        thread.join(30)
        if service.served is not None:
            service.served.scheduler.close()
        listener.close()


@dataclass(frozen=True)
class Command:
    """The real command, running."""

    process: subprocess.Popen[str]
    url: str
    log: Path


@contextlib.contextmanager
def command_server(
    model: Path | str, folder: Path, *arguments: str, command: Sequence[str] = ("server",)
) -> Iterator[Command]:
    """Run `python -m server` (or another module and its words) on a free port until the block ends."""
    ready, log = folder / "ready.json", folder / "server.log"
    served = ("--port", "0", "--ready-file", str(ready))
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, str(model), *served, *arguments],
            stderr=stream,
            stdout=stream,
            text=True,
        )
    try:
        wait_for(lambda: ready.exists() or process.poll() is not None, 300)
        assert process.poll() is None, log.read_text()
        yield Command(process, f"http://127.0.0.1:{json.loads(ready.read_text())['port']}", log)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)
