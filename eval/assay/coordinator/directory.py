"""A suite's run directory: where each thing lies in it.

It is named by suite, moment and configuration, made once, and written into by one process at a time
(`assay.coordinator.lock`). Ids of jobs are one path segment by their pattern; they are held against that here
again, because a path made of a stranger's text is where a run would write outside its own directory.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from assay.errors import ConfigurationError, VerificationError
from assay.files import OLDER, other_form, read_json
from assay.plan import NAME as RESOLVED
from assay.profile import SEGMENT, describe
from assay.suite.suite import SCHEMA, Suite

LOG = "run.log"
ANSWERS = "answers"


def segment(name: str) -> str:
    """The name, if it is one path segment; ConfigurationError otherwise."""
    if not re.fullmatch(SEGMENT, name):
        raise ConfigurationError(f"{name!r} is no name of a job", "it must be one path segment", "")
    return name


def attempt_folder(job: str, attempt: int) -> str:
    """Where a job's child writes, below the run directory."""
    return f"{segment(job)}/attempt-{attempt}"


def journal(run: Path, job: str) -> Path:
    """What the gateway keeps of a job's answers."""
    return run / ANSWERS / f"{segment(job)}.jsonl"


def aside(run: Path, job: str, attempt: int) -> Path:
    """Where a job's answers lie that nobody may use: of an attempt after which its target was another one."""
    return run / ANSWERS / f"{segment(job)}.not-used-{attempt}.jsonl"


def launch_folder(run: Path, job: str) -> Path:
    """Where what a job's child was given is recorded."""
    return run / "provenance" / "launch" / segment(job)


def load_suite(run: Path) -> Suite:
    """The configuration that a run was started with.

    Raises:
        VerificationError: there is none, it is of another form, or it cannot be read.
    """
    path = run / RESOLVED
    try:
        value = read_json(path)
        if other := other_form(value, SCHEMA):
            raise VerificationError(f"{path} is of the form {other}", f"this version reads {SCHEMA}", OLDER)
        return Suite.model_validate(value)
    except FileNotFoundError:
        raise VerificationError(f"{run} is not a suite's run: it has no {RESOLVED}") from None
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        reason = describe(error) if isinstance(error, ValidationError) else str(error)
        raise VerificationError(
            f"{path} cannot be read", reason, "restore it from where you got it"
        ) from error
