"""What is kept of a step: what it was begun with, each time it was carried on, and how that ended.

It lies in the step's folder, beside the run that it is about and the logs of its servers. A step goes on only
with what it was begun with; whatever differs by now is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import VerificationError
from assay.files import write_json_atomic
from assay.paths import relative
from assay.plan import NAME as RESOLVED
from assay.run.state import NAME as RUN_STATE

NAME = "state.json"
SCHEMA: Literal["assay/campaign-step/v1"] = "assay/campaign-step/v1"
Verb = Literal["run", "resume"]


class Attempt(BaseModel):
    """One time that a step was carried on.

    Attributes:
        verb: Whether its run was begun or resumed.
        started_at: UTC, ISO 8601.
        ended_at: UTC, ISO 8601; None where nobody was left to write it.
        exit_code: Of `assay run` or `assay resume`; None where it was not reached or not seen to end.
        server_log: The server's words, in the step's folder; None without a server.
        server_exit_code: How the server ended; negative for a signal.
        error: What stopped the step, in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: Verb
    started_at: str
    ended_at: str | None = None
    exit_code: int | None = None
    server_log: str | None = None
    server_exit_code: int | None = None
    error: str | None = None


class StepState(BaseModel):
    """The whole of a step's `state.json`.

    Attributes:
        schema_version: Of this form.
        campaign: The campaign's name.
        step: The step's.
        frozen: What it was begun with, by name: the server's words and variables, the suite and its digest.
        run: The run's folder, in the step's; None before there is one.
        given_up: Runs of this step that are not gone on with any more (`--new`).
        attempts: In order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/campaign-step/v1"] = SCHEMA
    campaign: str
    step: str
    frozen: Mapping[str, str]
    run: str | None = None
    given_up: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def done(self) -> bool:
        """Whether its run was seen to end well."""
        return bool(self.attempts) and self.attempts[-1].exit_code == 0 and self.run is not None

    def differences(self, now: Mapping[str, str]) -> list[str]:
        """What it would go on with that it was not begun with, each in a sentence."""
        names = [*self.frozen, *(name for name in now if name not in self.frozen)]
        return [
            f"{name} was {self.frozen.get(name, 'not there')!r} and is {now.get(name, 'not there')!r}"
            for name in names
            if self.frozen.get(name) != now.get(name)
        ]


def load(folder: Path) -> StepState | None:
    """The state of a step; None where it was never begun.

    Raises:
        VerificationError: it cannot be read.
    """
    path = folder / NAME
    try:
        return StepState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise VerificationError(
            f"{relative(path)} cannot be read",
            str(error).splitlines()[0],
            f"move the step's folder away: mv {relative(folder)} {relative(folder)}.saved",
        ) from error


def save(folder: Path, state: StepState) -> None:
    """Write the state atomically; RunError when the disk is full."""
    write_json_atomic(folder / NAME, state.model_dump(mode="json"))


def newest_run(folder: Path, given_up: tuple[str, ...]) -> Path | None:
    """The latest run in a step's folder that can be asked what became of it, but for those given up."""
    found = [
        path
        for path in folder.iterdir()
        if path.name not in given_up
        and not path.is_symlink()
        and (path / RESOLVED).is_file()
        and (path / RUN_STATE).is_file()
    ]
    # A run's name ends in its time, and two suites' names may differ.
    return max(found, key=lambda path: ((path / RESOLVED).stat().st_mtime_ns, path.name), default=None)
