"""The server of a step: started by command, waited for, and ended whatever becomes of the campaign.

It leads a process group of its own, and its keeper ends it when this process dies. Its words go to a log of
the step, line by line, with the secrets that it was given cut out.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import httpx

from assay.campaign.signals import Signals
from assay.console import step as said_step
from assay.coordinator.redact import Secrets
from assay.errors import CancelledError, ConfigurationError, PrerequisiteError
from assay.models import pins as models
from assay.names import nearest
from assay.paths import CACHE, ROOT, owned_directory, relative
from assay.run.kept import end, kept
from assay.run.key import Key
from assay.run.native import last_words
from assay.shell import python_variables
from assay.suite.campaign import STEP, Server, Step

NEEDED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "XDG_CACHE_HOME")
POLL_S = 0.2
ASK_S = 5.0
LAST_BYTES = 1 << 14


def values(server: Server, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What `${NAME}` in the command stands for; ConfigurationError when a variable is not set."""
    unset = [name for name in (*server.places, *server.secrets) if not environ.get(name)]
    if unset:
        raise ConfigurationError(
            f"{', '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set",
            "the campaign's server is started with it",
            f"export {unset[0]}=…",
        )
    return {STEP: str(folder), **{name: environ[name] for name in server.places}}


def command(server: Server, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The words that start it.

    Raises:
        ConfigurationError: a variable is not set, or no such model is pinned.
        PrerequisiteError: its program is not there.
    """
    words = server.words(values(server, folder, environ))
    if server.serve is not None:
        if server.serve not in models():
            raise ConfigurationError(
                f'models.lock has no model "{server.serve}"', nearest(server.serve, models()), "name another"
            )
        return [sys.executable, "-m", "assay.cli", "serve", server.serve, *words]
    program = shutil.which(words[0], path=environ.get("PATH"))
    if program is None:
        raise PrerequisiteError(
            f"there is no program {words[0]}",
            "the campaign's server is started with it",
            "install it, add its folder to PATH, or give its path in the campaign",
        )
    return [program, *words[1:]]


def environment(server: Server, environ: Mapping[str, str]) -> dict[str, str]:
    """Its whole environment."""
    handed = (*NEEDED, *server.variables, *server.secrets)
    found = {name: environ[name] for name in handed if name in environ} | dict(server.environment)
    if server.serve is not None:
        found |= {**python_variables(), "XDG_CACHE_HOME": str(owned_directory(CACHE))}
    return found


def require_free(server: Server) -> None:
    """Go on only if nothing answers where the server will; PrerequisiteError when something does."""
    try:
        answer = httpx.get(server.health, timeout=ASK_S, trust_env=False)
    except httpx.TransportError:
        return
    raise PrerequisiteError(
        f"something answers at {server.health} already (status {answer.status_code})",
        "the step's own server could not be told from it",
        "end it, then type the same command again",
    )


@contextmanager
def serving(
    step: Step,
    server: Server,
    folder: Path,
    log: Path,
    environ: Mapping[str, str],
    signals: Signals,
    began: Callable[[subprocess.Popen[bytes]], None],
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a step's server, wait until it can be asked, and end it when the block does.

    Args:
        step: Whose it is.
        server: What to start.
        folder: The step's folder.
        log: Where its words go.
        environ: The environment of who typed the command.
        signals: What ends the waiting.
        began: Told of its process as soon as there is one.

    Raises:
        CancelledError: a signal came before it could be asked.
        ConfigurationError: a variable is not set, or no such model is pinned.
        PrerequisiteError: its program is not there, something else answers in its place, or it does not
            answer in time.
    """
    words, env = command(server, folder, environ), environment(server, environ)
    require_free(server)
    secrets = Secrets()
    for name in server.secrets:
        secrets.add(Key(environ[name]))
    with contextlib.ExitStack() as stack:
        try:
            started = kept(words, env=env, cwd=ROOT, stdout=subprocess.PIPE, grace_s=server.stop_seconds)
            child = stack.enter_context(started)
        except OSError as error:
            raise PrerequisiteError(f"{words[0]} does not start", f"{error.strerror}", "") from error
        began(child)
        said = cast("IO[bytes]", child.stdout)
        copying = threading.Thread(target=copy, args=(said, log, secrets), daemon=True)
        copying.start()
        # Should a process that cannot be killed hold the pipe, its words are of no interest any more.
        stack.callback(copying.join, ASK_S)
        try:
            with said_step(f"step {step.name}: waiting for {server.health}"):
                _await_health(server, child, log, signals)
            yield child
        finally:
            end(child, grace_s=server.stop_seconds)


def _await_health(server: Server, child: subprocess.Popen[bytes], log: Path, signals: Signals) -> None:
    deadline = time.monotonic() + server.wait_seconds
    told = "it was not asked yet"
    with httpx.Client(timeout=ASK_S, trust_env=False) as client:
        while time.monotonic() < deadline:
            if signals.asked:
                raise CancelledError("cancelled before anything was asked")
            if child.poll() is not None:
                raise PrerequisiteError(
                    f"the server ended with exit code {child.returncode} before it could be asked",
                    tail(log),
                    f"read its log: {relative(log)}",
                )
            try:
                answer = client.get(server.health)
                if answer.is_success:
                    return
                told = f"it answered {answer.status_code}"
            except httpx.TransportError as error:
                told = str(error) or type(error).__name__
            time.sleep(POLL_S)
    raise PrerequisiteError(
        f"{server.health} did not answer well within {server.wait_seconds:g} s: {told}",
        tail(log),
        f"read the server's log: {relative(log)}; or raise wait_seconds",
    )


def tail(log: Path) -> str:
    """The last lines of a log, as one line."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LAST_BYTES))
        return last_words(file.read())
    return "it printed nothing"


def copy(source: IO[bytes], log: Path, secrets: Secrets) -> None:
    """Write what a server says to its log, line by line and without its secrets, until it says no more.

    A log that cannot be written ends no server: what it says is then read and dropped.
    """
    with contextlib.ExitStack() as opened:
        file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            file = opened.enter_context(log.open("ab", buffering=0))
        for line in iter(lambda: source.readline(1 << 20), b""):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.write(secrets.data(line))
        source.close()
