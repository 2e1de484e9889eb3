"""What is kept of the evaluators' records: all of them, those of rows that did not go well, or none.

It acts when every row has been counted and written, on what became of each row and never on the text of a
record. While a row of a job is missing its records stay, since a resume reads them, and those of a failed job
stay for whoever looks for its fault; the answers that the gateway keeps stay until nothing of the job is left
to ask again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from assay.files import replacing, sync_directory
from assay.record.dataset_result import DatasetResult, Retained
from assay.record.sample import Sample
from assay.suite.suite import Retention

KEPT = "retained.jsonl"
ANSWERS = "answers"


class Marks:
    """Which lines of which native records belong to rows that did not go well: one byte a line.

    Args:
        policy: The suite's; only `errors` needs them.
    """

    def __init__(self, policy: Retention) -> None:
        self._policy = policy
        self._lines: dict[str, bytearray] = {}
        self._whole: set[str] = set()
        self.rows = 0

    def take(self, row: Sample) -> None:
        """Look at a row."""
        if went_well(row):
            return
        self.rows += 1
        if self._policy != "errors" or row.record is None:
            return
        if row.line is None:
            self._whole.add(row.record)
            return
        lines = self._lines.setdefault(row.record, bytearray())
        lines.extend(bytes(max(0, row.line - len(lines))))
        lines[row.line - 1] = 1

    def lines(self) -> Iterator[tuple[str, bytearray]]:
        """Each marked record with a byte a line, by name."""
        for name in sorted(self._lines):
            yield name, self._lines[name]

    @property
    def whole(self) -> frozenset[str]:
        """Files that are the record of one row each."""
        return frozenset(self._whole)


def went_well(row: Sample) -> bool:
    """Whether a row has an answer that was whole, visible and could be read; right or wrong is no matter."""
    return row.status == "scored" and not row.empty and not row.unparsed


def retain(run: Path, result: DatasetResult, marks: Marks) -> Retained:
    """Remove what the policy does not keep of one job, and say what was done.

    Args:
        run: The run directory.
        result: The job's result, which has been written.
        marks: Of its rows.

    Raises:
        RunError: the disk is full; nothing has been removed.
        OSError: a record cannot be read or removed.
    """
    if result.retained.acted:
        return result.retained
    policy = result.retained.policy
    told = Retained(policy=policy, rows=marks.rows)
    if policy == "all" or result.status not in ("done", "partial") or result.counts.missing:
        return told
    folder = run / result.job
    kept = _keep(run, folder, marks) if policy == "errors" and folder.is_dir() else 0
    spared = marks.whole if policy == "errors" else frozenset()
    removed = list(_others(run, folder, spared))
    if result.status == "done":
        removed.append(run / ANSWERS / f"{result.job}.jsonl")
    sizes = [path.lstat().st_size for path in removed if path.is_symlink() or path.exists()]
    for path in removed:
        path.unlink(missing_ok=True)
    _prune(folder)
    return Retained(
        policy=policy,
        acted=True,
        rows=marks.rows,
        kept_rows=kept + len(spared),
        removed_files=len(sizes),
        removed_bytes=sum(sizes),
    )


def _keep(run: Path, folder: Path, marks: Marks) -> int:
    """Copy the marked lines beside the records, each with where it stood."""
    try:
        return _copy(run, folder, marks)
    except FileNotFoundError:
        # A run that died while it removed them had copied them before.
        if not (folder / KEPT).is_file():
            raise
        with (folder / KEPT).open("rb") as file:
            return sum(1 for _ in file)


def _copy(run: Path, folder: Path, marks: Marks) -> int:
    kept = 0
    with replacing(folder / KEPT) as write:
        for name, lines in marks.lines():
            with (run / name).open("rb") as file:
                for number, (line, marked) in enumerate(zip(file, lines, strict=False), start=1):
                    if marked:
                        kept += 1
                        text = line.decode("utf-8", "replace").rstrip("\n")
                        row = {"record": name, "line": number, "text": text}
                        write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    return kept


def _others(run: Path, folder: Path, spared: frozenset[str]) -> Iterator[Path]:
    for below, folders, names in os.walk(folder, followlinks=False):
        for name in [*names, *(name for name in folders if (Path(below) / name).is_symlink())]:
            path = Path(below) / name
            if path != folder / KEPT and path.relative_to(run).as_posix() not in spared:
                yield path


def _prune(folder: Path) -> None:
    """Remove the folders that hold nothing any more."""
    if not folder.is_dir():
        return
    for below, _, _ in os.walk(folder, topdown=False, followlinks=False):
        if not any(Path(below).iterdir()):
            shutil.rmtree(below)
    sync_directory(folder.parent)
