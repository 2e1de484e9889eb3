"""A suite's run directory: where each thing lies in it, and how it is made.

It is named by suite, moment and configuration, made once, and written into by one process at a time
(`assay.coordinator.lock`). Ids of jobs are one path segment by their pattern; they are held against that here
again, because a path made of a stranger's text is where a run would write outside its own directory.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from assay.errors import ConfigurationError, VerificationError
from assay.files import OLDER, other_form, read_json
from assay.plan import NAME as RESOLVED
from assay.profile import SEGMENT, describe
from assay.run.directory import DIRECTORY_ATTEMPTS
from assay.suite.suite import SCHEMA, Suite

LOG = "run.log"
ANSWERS = "answers"


def new_directory(suite: Suite, runs: Path) -> Path:
    """Make a directory for a run of the suite.

    Raises:
        ConfigurationError: a directory of that name is already there; it is left alone.
    """
    for attempt in range(DIRECTORY_ATTEMPTS):
        run = runs / f"{suite.name}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{suite.digest[:8]}"
        try:
            run.mkdir(mode=0o755)
        except FileExistsError:
            # Another run of this suite began in this second: the next one is free, unless something is odd.
            if attempt + 1 < DIRECTORY_ATTEMPTS:
                time.sleep(1.0)
        else:
            return run
    raise ConfigurationError(
        f"{run} is already there",
        "a run never writes into another's directory",
        f"move it away, or give another place: --runs DIR (see: ls {runs})",
    )


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
