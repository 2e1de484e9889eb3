"""What a killed life of a run left behind that nobody would account for: half-written files, untold moves.

A write becomes the file's content in its last step, so what was not renamed was never part of the run.
Answers that were set aside are where no resume reads them; only the event that says so may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.coordinator.directory import aside, attempt_folder
from assay.coordinator.events import REMOVED, SET_ASIDE, read_events
from assay.coordinator.state import State
from assay.files import partial_files


def clear(run: Path, state: State) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Remove and find what was left, while nobody else writes into the run.

    Args:
        run: The run directory.
        state: Where the run stands.

    Yields:
        The kind and the fields of each event that tells of it, after it was done.
    """
    attempts = [(job.id, number) for job in state.jobs for number in range(1, job.attempt + 1)]
    for path in partial_files(run, [run / attempt_folder(*each) for each in attempts]):
        path.unlink()
        yield REMOVED, {"file": path.relative_to(run).as_posix()}
    told = {str(row.get("file")) for row in read_events(run) if row.get("kind") == SET_ASIDE}
    for job, number in attempts:
        path = aside(run, job, number)
        name = path.relative_to(run).as_posix()
        if path.is_file() and name not in told:
            yield SET_ASIDE, {"job": job, "file": name}
