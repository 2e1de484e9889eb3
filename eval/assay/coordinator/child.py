"""Starting a backend's child, and seeing to its end: how far it is, what it says, and that nothing stays.

A child runs in a session of its own, so a terminal's Ctrl-C does not reach it; it is asked to end politely
(SIGINT, then SIGTERM to its group) and then killed. Its end is never believed to be the end of what it
started: its keeper kills that, also when the run was killed by kill -9 (`assay.run.kept`), and should the
keeper itself have been killed, what has left the child's group, session and parent is found by a mark in its
environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets as randomness
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from assay.backends.base import Command, Ended, Launcher, Reached
from assay.coordinator.limits import Bounds, bounds
from assay.coordinator.output import Output
from assay.coordinator.redact import Secrets
from assay.coordinator.stop import Stop
from assay.errors import RunError
from assay.process import kill, start_time_ticks
from assay.run.kept import end, kept

LOOK_S = 0.5
POLITE_S = 30.0
"""What a child has for its own clean-up after SIGINT, whose slowest part is the removal of containers."""
FIRM_S = 10.0
OUTPUT_S = 5.0
MARK = "ASSAY_CHILD"
WHOSE = {"cgroup": "of all its processes together", "process": "of each process by itself"}


def launcher(
    *,
    job: str,
    log: Callable[[str], None],
    secrets: Secrets,
    stop: Stop,
    heard: Callable[[Reached], None],
    record: Callable[[Command], None],
    memory_gib: float | None = None,
) -> Launcher:
    """How a job's child is started (`Context.start`).

    Args:
        job: The job's id.
        log: Takes a line of the child's output, secrets taken out; it must not raise.
        secrets: What must not be written; the child's own are added.
        stop: The job's; the child is ended when it is asked.
        heard: Called with how far the child is whenever that has changed.
        record: Called with what is started before it is.
        memory_gib: Most memory; None for no bound.

    Returns:
        A function that runs a child to its end. It raises RunError where the program cannot be started.
    """

    async def launch(command: Command, reached: Callable[[], Reached]) -> Ended:
        for key in command.secrets.values():
            secrets.add(key)
        mark = randomness.token_hex(16)
        with bounds(job, memory_gib) as bounded:
            record(command)
            if bounded.memory_bytes is not None:
                log(f"memory is bounded to {memory_gib:g} GiB, {WHOSE[bounded.how]}")
            output = Output(secrets, log)
            async with _started(command, mark, bounded, output) as child:
                code = await _follow(child, reached, heard, stop)
            if said := bounded.broken():
                log(said)
        last = " | ".join(each for each in (output.last, said) if each)
        return Ended(code, stop.why or "exit", last)

    return launch


@asynccontextmanager
async def _started(
    command: Command, mark: str, bounded: Bounds, output: Output
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Start the child; when the block ends, however it does, nothing of it is left."""
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    transport, _ = await loop.connect_read_pipe(lambda: output, os.fdopen(reading, "rb", buffering=0))
    with contextlib.ExitStack() as stack:
        stack.callback(transport.close)
        try:
            shown = {name: key.reveal() for name, key in command.secrets.items()}
            with os.fdopen(writing, "wb", buffering=0) as stream:
                started = kept(
                    command.words,
                    env={**command.environment, **shown, MARK: mark},
                    cwd=command.cwd,
                    stdout=stream,
                    prepare=bounded.prepare,
                )
                child = stack.enter_context(started)
        except OSError as error:
            raise RunError(f"{command.words[0]} cannot be started", str(error)) from error
        stack.callback(_kill, child, mark)
        yield child
        await asyncio.to_thread(kill_marked, mark)
        # Nobody is left who could hold the other end, so the output has an end.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(output.ended.wait(), OUTPUT_S)


def _kill(child: subprocess.Popen[bytes], mark: str) -> None:
    """At once, where the block was left before the child's end."""
    if child.returncode is None:
        end(child, signal.SIGKILL)
        kill_marked(mark)


async def _follow(
    child: subprocess.Popen[bytes],
    reached: Callable[[], Reached],
    heard: Callable[[Reached], None],
    stop: Stop,
) -> int:
    """Tell how far the child is until it ends, which is brought about when the job is to stop."""
    last: Reached | None = None

    def tell() -> None:
        nonlocal last
        try:
            now = reached()
        except OSError:  # a record that cannot be read now can be at the next look
            return
        if now != last:
            last = now
            heard(now)

    async with _end_of(child) as gone:
        stopping = asyncio.create_task(stop.wait())
        try:
            while not gone.done() and not stop.asked:
                tell()
                await asyncio.wait({gone, stopping}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                await _ask_to_end(child, gone, stop)
            tell()
        finally:
            stopping.cancel()
    return await asyncio.to_thread(end, child, signal.SIGKILL)


async def _ask_to_end(child: subprocess.Popen[bytes], gone: asyncio.Future[None], stop: Stop) -> None:
    """Ask the child to end, then tell its whole group; return when it has, or when there is no time left."""
    urgent = asyncio.ensure_future(stop.wait_urgent())
    steps: tuple[tuple[Callable[[], None], float], ...] = (
        (lambda: child.send_signal(signal.SIGINT), POLITE_S),
        (lambda: child.send_signal(signal.SIGTERM), FIRM_S),
    )
    try:
        for ask, grace_s in steps:
            if gone.done() or stop.urgent:
                return
            ask()
            await asyncio.wait({gone, urgent}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        urgent.cancel()


@asynccontextmanager
async def _end_of(child: subprocess.Popen[bytes]) -> AsyncIterator[asyncio.Future[None]]:
    """A future that is done when the child has ended; nobody has to look again and again."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    named = os.pidfd_open(child.pid)

    def ended() -> None:
        loop.remove_reader(named)
        child.poll()
        if not gone.done():
            gone.set_result(None)

    loop.add_reader(named, ended)
    try:
        yield gone
    finally:
        loop.remove_reader(named)
        os.close(named)


def kill_marked(mark: str) -> int:
    """Kill every process whose environment has the mark, and those that it starts meanwhile; how many.

    Args:
        mark: The value of `MARK`.
    """
    words = f"{MARK}={mark}".encode("ascii")
    killed: set[tuple[int, int]] = set()
    while found := marked(words) - killed:
        kill(found)
        killed |= found
    return len(killed)


def marked(words: bytes) -> set[tuple[int, int]]:
    """The living processes whose environment has a variable with that value, as (id, start time)."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if words in (path / "environ").read_bytes().split(b"\0"):
                ticks = start_time_ticks(int(path.name))
                if ticks is not None:
                    found.add((int(path.name), ticks))
    return found
