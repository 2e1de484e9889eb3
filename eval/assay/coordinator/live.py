"""A suite's run while it is conducted: everything that its jobs share, and its state on the disk.

One event loop changes it. A full disk is noticed wherever something is written; it asks the run to stop, so
that what was written before stays whole, and the run can be resumed once there is room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.backends.base import Backend, Command, Expected
from assay.coordinator import leftovers
from assay.coordinator.directory import LOG, launch_folder
from assay.coordinator.events import Events
from assay.coordinator.frozen import Frozen
from assay.coordinator.redact import Secrets, password
from assay.coordinator.runlog import RunLog
from assay.coordinator.state import Phase, Spent, State, save_state
from assay.coordinator.stop import Stop
from assay.coordinator.targets import Targets
from assay.errors import AssayError
from assay.files import disk_full, write_json_atomic
from assay.run.key import Key
from assay.run.native import Scratch
from assay.suite.suite import Suite

SAVE_EVERY_S = 1.0


@dataclass(frozen=True)
class Running:
    """A job while its child runs.

    Attributes:
        begun: By the monotonic clock.
        seconds: That it was active in earlier attempts.
        spent: Tells what it has used of its target so far, over all attempts.
    """

    begun: float
    seconds: float
    spent: Callable[[], Spent]


@dataclass
class Live:
    """What is known of a run so far.

    Attributes:
        run: Its directory.
        suite: What it asks.
        backends: By name.
        expected: What each job will ask, by its id.
        state: As last saved.
        scratch: Private, gone when the run ends.
        loop: Whose thread alone changes this.
        stop: Asks the whole run to end.
        secrets: What must not be written.
        frozen: The inputs that it began with.
        data: Verified data by name.
        blocked: Why a target is asked nothing more, by its name.
        running: The jobs whose children run, by id.
        full: The first error of a full disk.
        lanes: Keys of lanes, which open nothing once the run has ended.
        given: What else children were given that is secret, by its variable.
    """

    run: Path
    suite: Suite
    backends: Mapping[str, Backend]
    expected: Mapping[str, Expected]
    state: State
    scratch: Scratch
    loop: asyncio.AbstractEventLoop
    stop: Stop = field(default_factory=Stop)
    secrets: Secrets = field(default_factory=Secrets)
    frozen: Frozen = field(default_factory=lambda: Frozen({}, {}))
    data: dict[str, Path] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    full: Exception | None = None
    lanes: set[str] = field(default_factory=set)
    given: dict[str, Key] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open what is written into the run all the time, and begin to count its seconds."""
        self.targets = Targets(self.suite, self.run, self.scratch, self.secrets)
        self._begun = time.monotonic()
        self._seconds = self.state.seconds
        self._saved = 0.0
        self._launched: dict[str, int] = {}
        self.opened = False

    def open(self) -> None:
        """Open events and log; what a life that was killed left torn or half-written is mended and noted."""
        self.log = RunLog(self.run / LOG, self.secrets, self.disk_is_full)
        self.events = Events(self.run, self.secrets, self.disk_is_full)
        self.opened = True
        for kind, fields in leftovers.clear(self.run, self.state):
            self.tell(kind, fields)

    def close(self) -> None:
        """Close events and log; a second call does nothing."""
        if self.opened:
            self.opened = False
            self.events.close()
            self.log.close()

    @property
    def seconds(self) -> float:
        """The run has been active, over all its attempts."""
        return self._seconds + time.monotonic() - self._begun

    def disk_is_full(self, error: Exception) -> None:
        """Note that something could not be written, and ask the run to end; any thread may call it."""
        self.full = self.full or error
        self.loop.call_soon_threadsafe(self.stop.ask, "disk")

    def failed_to_write(self, error: Exception) -> bool:
        """Whether an error says that the disk is full; it is noted then."""
        told = disk_full(self.run, error) if isinstance(error, OSError) else error
        full = isinstance(told, AssayError) and "the disk is full" in told.what
        if full:
            self.full = self.full or told
            self.stop.ask("disk")
        return full

    def save(self, phase: Phase | None = None, **changed: object) -> None:
        """Write the state, with fields changed; a full disk is noted and raises nothing."""
        for name, running in self.running.items():
            seconds = round(running.seconds + time.monotonic() - running.begun, 3)
            self.state = self.state.with_job(name, seconds=seconds, spent=running.spent())
        update = {"phase": phase or self.state.phase, "seconds": round(self.seconds, 3), **changed}
        self.state = self.state.model_copy(update=update)
        try:
            save_state(self.run, self.state)
        except (AssayError, OSError) as error:
            if not self.failed_to_write(error):
                raise
        self._saved = time.monotonic()

    def job(self, name: str, **changed: object) -> None:
        """Change one job's state and write it."""
        self.state = self.state.with_job(name, **changed)
        self.save()

    def reached(self, name: str, done: int, total: int | None) -> None:
        """Take note of how far a job is; it is written at most once a second."""
        update: dict[str, object] = {"done": done} if total is None else {"done": done, "total": total}
        self.state = self.state.with_job(name, **update)
        if time.monotonic() - self._saved >= SAVE_EVERY_S:
            self.save()

    def tell(self, kind: str, fields: Mapping[str, object]) -> None:
        """Write an event; the gateway's of a full disk ask the run to end."""
        if kind == "disk-full":
            self.disk_is_full(OSError(str(fields.get("error", "the disk is full"))))
        self.events(kind, fields)

    def launched(self, job: str, attempt: int, command: Command) -> None:
        """Record how a job's child is started: its command, and its environment but for the secrets."""
        passwords = {name: password(value) for name, value in command.environment.items()}
        given = {**command.secrets, **{name: key for name, key in passwords.items() if key is not None}}
        for name, key in given.items():
            self.secrets.add(key)
            if key.reveal() not in self.lanes:
                self.given[name] = key
        number = self._launched[job] = self._launched.get(job, 0) + 1
        value = {
            "attempt": attempt,
            "command": list(command.words),
            "environment": dict(sorted(command.environment.items())),
            "secrets": sorted(command.secrets),
            "working_directory": str(command.cwd),
        }
        name = f"command.{attempt}.json" if number == 1 else f"command.{attempt}.{number}.json"
        folder = launch_folder(self.run, job)
        folder.mkdir(parents=True, exist_ok=True)
        write_json_atomic(folder / name, self.secrets.value(value))

    @property
    def tokens(self) -> int:
        """What all jobs together have used of their targets, as of the last saved state."""
        return sum(job.spent.prompt_tokens + job.spent.completion_tokens for job in self.state.jobs)
