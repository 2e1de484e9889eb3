"""Lines of a run's native records, each found by the record's name and the line's number.

A row of `samples.jsonl` names both. Where the suite's retention removed a record, the lines of rows that did
not go well stand in the job's `retained.jsonl`. A file is walked once to learn where its lines begin; after
that each line is read by itself, so that a long record need not fit into memory.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from assay.record.native import well_formed
from assay.record.retention import KEPT

Value = Mapping[str, Any]


@dataclass(frozen=True)
class Lines:
    """The native records of a run.

    Attributes:
        run: The run directory, which holds no link that leads elsewhere (`assay.record.manifest.run_files`).
    """

    run: Path
    _begins: dict[str, array[int]] = field(default_factory=dict, init=False, repr=False)
    _kept: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict, init=False, repr=False)

    def line(self, record: str | None, number: int | None) -> Value | None:
        """What a line of a record says; None where the run has none of it.

        Args:
            record: The record's path below the run directory, as a row names it.
            number: 1-based.

        Raises:
            ValueError: the line is no JSON object, or the name leads out of the run.
        """
        if record is None or number is None:
            return None
        path = self.path(record)
        if path.is_file():
            begins = self._walked(record, path)
            return self._read(path, begins[number - 1]) if 0 < number <= len(begins) else None
        return self._retained(record, number)

    def path(self, record: str) -> Path:
        """A record's file; ValueError where its name leads out of the run."""
        name = PurePosixPath(record)
        if name.is_absolute() or ".." in name.parts or not name.parts:
            raise ValueError(f"{record!r} is no path below the run")
        return self.run / name

    def all(self, record: str) -> Iterator[tuple[int, Value]]:
        """Each whole line of a record with its number; nothing where it is not there."""
        path = self.path(record)
        if path.is_file():
            for number, begin in enumerate(self._walked(record, path), start=1):
                yield number, self._read(path, begin)

    def _walked(self, record: str, path: Path) -> array[int]:
        if record not in self._begins:
            begins, at = array("Q"), 0
            with path.open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    begins.append(at)
                    at += len(line)
            self._begins[record] = begins
        return self._begins[record]

    def _read(self, path: Path, begin: int) -> Value:
        with path.open("rb") as file:
            file.seek(begin)
            return parsed(file.readline())

    def _retained(self, record: str, number: int) -> Value | None:
        job = PurePosixPath(record).parts[0]
        path = self.run / job / KEPT
        if job not in self._kept:
            found = {}
            if path.is_file():
                for begin in self._walked(f"{job}/{KEPT}", path):
                    told = self._read(path, begin)
                    found[(str(told["record"]), int(told["line"]))] = begin
            self._kept[job] = found
        at = self._kept[job].get((record, number))
        return None if at is None else parsed(str(self._read(path, at)["text"]).encode("utf-8"))


def parsed(line: bytes) -> Value:
    """A line's JSON object; ValueError when it is none."""
    try:
        value = well_formed(line, json.loads(line))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value
