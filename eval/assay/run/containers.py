"""Containers that a run's evaluator started, and what to do when it could not clean up after itself.

Each has the run's label (`assay.run.client`), and the evaluator removes it itself. After kill -9, a second
Ctrl-C, or when the engine went away, nobody does: then the label finds them, and only them, at the end of the
run or before the next one. What a log or a record says of names is not believed: a model may have worded it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import docker
from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from assay.errors import VerificationError
from assay.run.client import LABEL
from assay.run.state import load_state

FAILURES = (DockerException, RequestException, OSError)


def sweep(run_name: str) -> int | None:
    """Remove every container of the run, and return how many there were; None when no Docker answers."""
    return _remove(lambda name: name == run_name)


def sweep_ended(runs: Path) -> int | None:
    """Remove the containers of every run in a folder that is not live, and return how many there were.

    Args:
        runs: Where run directories are. Containers of runs elsewhere, and of others' work, stay.

    Returns:
        None when no Docker answers.
    """
    return _remove(lambda name: _has_ended(runs, name))


def _has_ended(runs: Path, name: str) -> bool:
    if Path(name).name != name:
        return False
    run = runs / name
    try:
        return load_state(run).standing(run) != "live"
    except VerificationError:
        return False


def _remove(wanted: Callable[[str], bool]) -> int | None:
    removed = 0
    try:
        with contextlib.closing(docker.from_env(timeout=60)) as client:
            # One that is gone by the time it is looked at is what is wanted.
            for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
                if wanted(container.labels[LABEL]):
                    with contextlib.suppress(NotFound):
                        container.remove(force=True)
                        removed += 1
    except FAILURES:
        return None
    return removed
