"""A run's directory: named by profile, moment and plan, made once and written into by nobody else."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from assay.errors import ConfigurationError
from assay.files import write_json_atomic
from assay.plan import NAME as RESOLVED
from assay.plan import Plan
from assay.run.progress import Progress
from assay.run.state import EntryState, State, now, this_process

DIRECTORY_ATTEMPTS = 3


def create(plan: Plan, runs: Path) -> Progress:
    """Make the run's directory with the resolved configuration and the first state in it.

    Raises:
        ConfigurationError: a directory of that name is already there; it is left alone.
    """
    run = new_directory(plan.profile, plan.digest, runs)
    entries = tuple(EntryState(name=entry.name, planned=entry.planned) for entry in plan.entries)
    state = State(
        profile=plan.profile, phase="starting", owner=this_process(), started_at=now(), entries=entries
    )
    progress = Progress(run, plan, state)
    progress.save()
    write_json_atomic(run / RESOLVED, plan.model_dump(mode="json"))
    return progress


def new_directory(name: str, digest: str, runs: Path) -> Path:
    """Make a directory for a run.

    Args:
        name: Of the profile or the suite.
        digest: Of what is asked; its beginning is part of the directory's name.
        runs: Where it is made.

    Raises:
        ConfigurationError: a directory of that name is already there; it is left alone.
    """
    for attempt in range(DIRECTORY_ATTEMPTS):
        run = runs / f"{name}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{digest[:8]}"
        try:
            run.mkdir(mode=0o755)
        except FileExistsError:
            # Another run of it began in this second: the next one is free, unless something is odd.
            if attempt + 1 < DIRECTORY_ATTEMPTS:
                time.sleep(1.0)
        else:
            return run
    raise ConfigurationError(
        f"{run} is already there",
        "a run never writes into another's directory",
        f"move it away, or give another place: --runs DIR (see: ls {runs})",
    )
