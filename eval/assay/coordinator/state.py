"""`state.json` of a suite's run: where each job stands, and what is known of it besides its rows.

It is written whole, atomically, at every change that a resume or a reader must know of. Counts of samples
in it are for people; what a run found is computed from rows alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.coordinator.lock import Holder, held
from assay.errors import VerificationError
from assay.files import OLDER, other_form, read_json, write_json_atomic
from assay.record.manifest import NAME as MANIFEST
from assay.record.summary import EXIT_CODES
from assay.run.state import no_state

NAME = "state.json"
SCHEMA: Literal["assay/suite-state/v1"] = "assay/suite-state/v1"
Phase = Literal["starting", "running", "recording", "done", "partial", "failed", "cancelled", "paused"]
JobPhase = Literal["queued", "running", "ended", "cancelled", "paused"]
Standing = Literal["live", "died", "foreign", "done", "partial", "failed", "cancelled", "paused"]
Verdict = Literal["done", "partial", "failed"]
BudgetName = Literal["tokens", "wall_seconds"]


class Spent(BaseModel):
    """What a job has used of its target, over all its attempts.

    Attributes:
        prompt_tokens: As the server counts them.
        completion_tokens: Generated.
        requests: Of the child, that went on to the target.
        retries: How often one of them was asked again.
        replayed: Answered from what had been kept, without asking anybody.
        errors: Requests that stayed without an answer to keep.
        uncounted: Answers whose server did not say how many tokens they took.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0
    retries: int = 0
    replayed: int = 0
    errors: int = 0
    uncounted: int = 0


class NativeEnd(BaseModel):
    """How a job's child ended, which decides nothing.

    Attributes:
        code: Exit status; negative for a signal.
        why: "exit", or why it was stopped.
        said: The last lines it printed, secrets redacted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: int
    why: str
    said: str


class JobState(BaseModel):
    """How far one job has come.

    Attributes:
        id: The job.
        phase: "ended" says that its last attempt came to an end by itself, well or not.
        verdict: Of an ended job; one that is "done" is never started again.
        attempt: Number of the last attempt; 0 before the first.
        total: Samples that it has in all; None where nobody knows yet.
        done: Samples finished, as its child last told.
        started_at: Of the first attempt, UTC.
        ended_at: Of the last, UTC.
        seconds: It was active, over all attempts.
        spent: Of its target.
        ended: How the child of its last attempt ended; None where none did.
        budget: Which of its bounds ended it, "tokens" or "wall_seconds"; it is not started again then.
        problems: Faults that fail it.
        notes: Faults that do not.
        error: What it failed of, in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    phase: JobPhase = "queued"
    verdict: Verdict | None = None
    attempt: int = Field(default=0, ge=0)
    total: int | None = None
    done: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    seconds: float = 0.0
    spent: Spent = Spent()
    ended: NativeEnd | None = None
    budget: BudgetName | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def settled(self) -> bool:
        """Whether no resume starts it again: it is complete, or its budget has ended it."""
        return self.phase == "ended" and (self.verdict == "done" or self.budget is not None)


class State(BaseModel):
    """The whole of `state.json`.

    Attributes:
        schema_version: Of this form.
        suite: The suite's name.
        phase: How far the run has come.
        started_at: UTC, ISO 8601.
        ended_at: UTC, ISO 8601; of the last attempt.
        resumed: How often it was taken up again.
        seconds: It was active, pauses between its attempts left out.
        jobs: In the suite's order.
        problems: Faults that fail the run and belong to no job.
        error: What ended the run, in words.
        error_exit_code: The code the command ended with, where an error ended it before there were results.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: Literal["assay/suite-state/v1"] = SCHEMA
    suite: str
    phase: Phase
    started_at: str
    ended_at: str | None = None
    resumed: int = 0
    seconds: float = 0.0
    jobs: tuple[JobState, ...]
    problems: tuple[str, ...] = ()
    error: str | None = None
    error_exit_code: int | None = None

    def job(self, name: str) -> JobState:
        """One job's state."""
        return next(job for job in self.jobs if job.id == name)

    def with_job(self, name: str, **changed: object) -> State:
        """The state with one job's fields changed."""
        jobs = tuple(job.model_copy(update=changed) if job.id == name else job for job in self.jobs)
        return self.model_copy(update={"jobs": jobs})


def standing(run: Path, state: State, holder: Holder | None) -> Standing:
    """What became of a run: its phase, or whether a process writes it.

    A run that found something ends with its manifest, so "done" without one is not the end yet.

    Args:
        run: The run directory.
        state: What its state says.
        holder: Who holds or last held it.
    """
    phase = state.phase
    if phase == "failed" or phase == "paused" or phase == "cancelled":
        return phase
    if (phase == "done" or phase == "partial") and (run / MANIFEST).exists():
        return phase
    if held(run):
        return "live"
    return "foreign" if holder is not None and holder.foreign else "died"


def exit_code(stands: Standing, state: State) -> int:
    """The code `assay status` ends with: 0 for a live run, 5 for one that died, else the run's own."""
    if stands == "live":
        return 0
    if stands in ("failed", "paused") and state.error_exit_code is not None:
        return state.error_exit_code
    if stands == "done" or stands == "partial" or stands == "cancelled":
        return EXIT_CODES[stands]
    return EXIT_CODES["failed"]


def is_suite(run: Path) -> bool:
    """Whether a directory holds the run of a suite, and not one of a profile or none."""
    try:
        value = read_json(run / NAME)
    except (OSError, ValueError, RecursionError):
        return False
    family = SCHEMA.rpartition("/")[0]
    return isinstance(value, dict) and str(value.get("schema_version")).rpartition("/")[0] == family


def save_state(run: Path, state: State) -> None:
    """Write the state atomically; RunError when the disk is full."""
    write_json_atomic(run / NAME, state.model_dump(mode="json"))


def load_state(run: Path) -> State:
    """Read the state of a suite's run.

    Raises:
        VerificationError: there is no run, it is of another form, or its state cannot be read.
    """
    path = run / NAME
    try:
        value = read_json(path)
        if other := other_form(value, SCHEMA):
            raise VerificationError(f"{path} is of the form {other}", f"this version reads {SCHEMA}", OLDER)
        return State.model_validate(value)
    except FileNotFoundError:
        raise no_state(run) from None
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise VerificationError(f"{path} cannot be read", str(error).splitlines()[0], "") from error
