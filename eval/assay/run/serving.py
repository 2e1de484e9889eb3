"""The server that a run starts itself: kept as its evaluator is, and stopped at the end.

It is started by command and asked over HTTP like any other. Should the run be killed, server and evaluator
are told at the same moment, so no request is recorded as failed because its server was the first to go. Its
key is random, stands in a private file until the run ends, and nowhere else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.console import step
from assay.errors import CancelledError, PrerequisiteError
from assay.files import read_json
from assay.paths import CACHE, ROOT, owned_directory
from assay.plan import OwnServer
from assay.run.endpoint import Endpoint
from assay.run.kept import end, kept
from assay.run.key import make_key_file
from assay.run.native import Scratch, last_words
from assay.shell import python_variables

READY_TIMEOUT_S = 180.0
POLL_S = 0.05


@contextmanager
def serve(
    server: OwnServer, model: Path, scratch: Scratch, log: Path, cancelled: Callable[[], bool]
) -> Iterator[Endpoint]:
    """Start the server, yield where it listens, and stop it.

    Args:
        server: What to serve.
        model: The verified model file.
        scratch: The run's private folder, for the key.
        log: Where the server's words go.
        cancelled: Whether to give up waiting for it.

    Raises:
        CancelledError: the user gave up before it was ready.
        PrerequisiteError: it does not start, or not in time; its last words are in the message.
    """
    key_file = scratch.path / "key"
    ready_file = scratch.path / "server.json"
    key = make_key_file(key_file)
    words: list[str | Path] = [sys.executable, "-m", "server", model, "--host", "127.0.0.1", "--port", "0"]
    words += ["--key-file", key_file, "--ready-file", ready_file]
    words += ["--name", server.model, "--slots", str(server.slots)]
    env = {
        **python_variables(),
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(scratch.folder("home")),
        "TMPDIR": str(scratch.folder("tmp")),
        "XDG_CACHE_HOME": str(owned_directory(CACHE)),
        "PYTHONNOUSERSITE": "1",
    }
    with log.open("wb") as output, kept(words, env=env, cwd=ROOT, stdout=output) as child:
        try:
            with step("starting the server (the first start compiles the engine)"):
                port = _await_ready(child, ready_file, log, cancelled)
            yield Endpoint(f"http://127.0.0.1:{port}/v1", server.model, key, own=True)
        finally:
            end(child)


def _await_ready(
    child: subprocess.Popen[bytes], ready_file: Path, log: Path, cancelled: Callable[[], bool]
) -> int:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if ready_file.exists():
            return int(read_json(ready_file)["port"])
        if child.poll() is not None:
            raise PrerequisiteError(
                f"the server ended with exit code {child.returncode} before it was ready",
                last_words(log.read_bytes()),
                "eval/scripts/setup --check; then read its log",
            )
        if cancelled():
            raise CancelledError("cancelled before anything was asked")
        time.sleep(POLL_S)
    raise PrerequisiteError(
        f"the server was not ready within {READY_TIMEOUT_S:.0f} s",
        last_words(log.read_bytes()),
        "read its log",
    )
