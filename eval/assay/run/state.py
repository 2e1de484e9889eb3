"""`state.json`: where a run stands, and whether the process that writes it still lives.

The writer is named by process id, start time and boot, because an id alone is used again: after kill -9 the
file still says "running", and `standing` tells the truth from the triple.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import VerificationError
from assay.files import write_json_atomic
from assay.process import start_time_ticks
from assay.record.manifest import NAME as MANIFEST
from assay.record.summary import EXIT_CODES, Outcome

NAME = "state.json"
STAMP = re.compile(r"\.(?P<at>[0-9]{8}T[0-9]{6}Z)-(?P<digest>[0-9a-f]{8})$")
"""How a run's directory is named after what it asks: its moment, and how its digest begins."""
SCHEMA = "assay/state/v1"
Phase = Literal["starting", "running", "recording", "done", "partial", "failed", "cancelled"]
Standing = Literal["live", "died", "done", "partial", "failed", "cancelled"]


class Owner(BaseModel):
    """The process that writes a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    start_ticks: int
    boot_id: str

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs on this machine."""
        return self.boot_id == boot_id() and start_time_ticks(self.pid) == self.start_ticks


class EntryState(BaseModel):
    """How far one entry has come.

    Attributes:
        name: The entry.
        planned: Rollouts.
        finished: Rollouts in the evaluator's record.
        started_at: UTC, ISO 8601.
        ended_at: UTC, ISO 8601.
        native_exit_code: The evaluator's own exit code (it says little: 0 also when all failed).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    planned: int
    finished: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    native_exit_code: int | None = None


class State(BaseModel):
    """The whole of `state.json`.

    Attributes:
        schema_version: Of this form.
        profile: The profile's name.
        phase: How far the run has come.
        owner: The process that writes it.
        started_at: UTC, ISO 8601.
        ended_at: UTC, ISO 8601.
        entries: How far each entry has come.
        error: What ended or failed the run, in words.
        error_exit_code: The code the command ended with, where an error ended it before there were results.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: str = SCHEMA
    profile: str
    phase: Phase
    owner: Owner
    started_at: str
    ended_at: str | None = None
    entries: tuple[EntryState, ...]
    error: str | None = None
    error_exit_code: int | None = None

    def standing(self, run: Path) -> Standing:
        """What became of the run: its phase, or whether its writer lives.

        A run that found something ends with its manifest, so "done" without one is not the end yet.

        Args:
            run: The directory that the state was read from.
        """
        if self.phase == "failed" or self.phase == "cancelled":
            return self.phase
        if (self.phase == "done" or self.phase == "partial") and (run / MANIFEST).exists():
            return self.phase
        return "live" if self.owner.alive else "died"


def exit_code(standing: Standing, state: State) -> int:
    """The code `assay status` ends with: 0 for a live run, 5 for one that died, else the run's own."""
    if standing == "live":
        return 0
    if standing == "failed" and state.error_exit_code is not None:
        return state.error_exit_code
    outcome: Outcome = "failed" if standing == "died" else standing
    return EXIT_CODES[outcome]


def boot_id() -> str:
    """What names this boot of this machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def this_process() -> Owner:
    """The process that calls."""
    return Owner(pid=os.getpid(), start_ticks=start_time_ticks(os.getpid()) or 0, boot_id=boot_id())


def now() -> str:
    """The time, UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def save_state(run: Path, state: State) -> None:
    """Write the state atomically; RunError when the disk is full."""
    write_json_atomic(run / NAME, state.model_dump(mode="json"))


def no_state(run: Path) -> VerificationError:
    """What is said of a directory without a state: by its name it may be a run that was ended at once."""
    if not STAMP.search(run.resolve().name) or not run.is_dir():
        return VerificationError(f"{run} is not a run: it has no {NAME}", "", "list the runs: ls eval/runs")
    return VerificationError(
        f"{run} has no {NAME}",
        "its run was ended before it had begun, or begins just now: nothing was asked",
        f"assay status {run}   # in a moment; if it says the same, start a new run",
    )


def load_state(run: Path) -> State:
    """Read the state of a run.

    Raises:
        VerificationError: there is no run, or its state cannot be read.
    """
    path = run / NAME
    try:
        return State.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise no_state(run) from None
    except (OSError, ValidationError) as error:
        raise VerificationError(f"{path} cannot be read", str(error).splitlines()[0], "") from error
