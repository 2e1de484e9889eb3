"""Containers that a run's evaluator started, and what to do when it could not clean up after itself.

The evaluator removes each container itself. After kill -9, a second Ctrl-C, or when the engine went away,
nobody does: then they are found again, and only they, at the end of the run or before the next one. Verifiers
0.4 labels each with the run's name; 0.3 labels nothing, but its log names each container that it started.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import docker
from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from assay.errors import VerificationError
from assay.run.state import Standing, load_state

LABEL = "verifiers.run"
STARTED = re.compile(r"docker: started container ([A-Za-z0-9][A-Za-z0-9_.-]*) \(image=")
FAILURES = (DockerException, RequestException, OSError)


def sweep(run_name: str, record: Path) -> int | None:
    """Remove every container of the run, and return how many there were; None when no Docker answers.

    Args:
        run_name: The label of the run's containers.
        record: The evaluator's folder in the run directory, with its logs.
    """
    named = started(record)
    return _remove(lambda label, name: label == run_name or name in named, bool(named))


def sweep_ended(runs: Path) -> int | None:
    """Remove the containers of every run in a folder that is not live, and return how many there were.

    Args:
        runs: Where run directories are. Containers of runs elsewhere, and of others' work, stay.

    Returns:
        None when no Docker answers.
    """
    named: set[str] = set()
    for run in runs.iterdir():
        # A finished run has swept its own.
        if _standing(run) == "died":
            named |= started(run)
    return _remove(
        lambda label, name: (label is not None and _has_ended(runs, label)) or name in named, bool(named)
    )


def started(folder: Path) -> set[str]:
    """The containers that the evaluator's logs in a folder name."""
    found: set[str] = set()
    for log in folder.rglob("eval.log"):
        if log.is_file() and "latest" not in log.parts:
            found |= set(STARTED.findall(log.read_text("utf-8", errors="replace")))
    return found


def _has_ended(runs: Path, name: str) -> bool:
    if Path(name).name != name:
        return False
    return _standing(runs / name) not in (None, "live")


def _standing(run: Path) -> Standing | None:
    try:
        return load_state(run).standing(run)
    except VerificationError:
        return None


def _remove(wanted: Callable[[str | None, str], bool], unlabelled: bool) -> int | None:
    removed = 0
    filters: dict[str, str | list[str] | bool] = {} if unlabelled else {"label": LABEL}
    try:
        with contextlib.closing(docker.from_env(timeout=60)) as client:
            # One that is gone by the time it is looked at is what is wanted.
            for container in client.containers.list(all=True, filters=filters, ignore_removed=True):
                if wanted(container.labels.get(LABEL), str(container.name)):
                    with contextlib.suppress(NotFound):
                        container.remove(force=True)
                        removed += 1
    except FAILURES:
        return None
    return removed
