"""The recorded rows of a run, read one at a time, and what only a look at all of them tells."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from assay.digest import canonical_json
from assay.errors import VerificationError
from assay.record.results import SAMPLES
from assay.record.sample import Sample

Group = tuple[str, str | None]
"""Entry and family; no family where every family of the entry is meant."""


@dataclass(frozen=True)
class Trait:
    """What the rows of a benchmark have in common.

    Attributes:
        binary: Every reward is 0 or 1; None where there is none.
        tasks: How many were asked.
        questions: SHA-256 over each task's key and the digest of its question, in order.
    """

    binary: bool | None
    tasks: int
    questions: str


def read(run: Path) -> Iterator[Sample]:
    """Every row of `samples.jsonl`.

    Raises:
        VerificationError: there is no such file, or a line of it is no row.
    """
    path = run / SAMPLES
    try:
        file = path.open("rb")
    except OSError as error:
        raise VerificationError(
            f"{path} cannot be read", error.strerror or str(error), f"assay status {run}"
        ) from error
    with file:
        for number, line in enumerate(file, start=1):
            try:
                yield Sample.model_validate_json(line)
            except ValidationError as error:
                raise VerificationError(
                    f"{path} line {number} is no row", str(error).splitlines()[0], f"assay audit {run}"
                ) from error


class _Growing:
    """A trait while its rows pass."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._last: str | None = None
        self._tasks = 0
        self._binary: bool | None = None

    def add(self, row: Sample) -> None:
        if row.reward is not None:
            self._binary = self._binary is not False and row.reward in (0.0, 1.0)
        # Rollouts of a task stand beside each other.
        if row.task_key != self._last:
            self._last = row.task_key
            self._tasks += 1
            self._digest.update(canonical_json([row.task_key, row.cluster]) + b"\n")

    def trait(self) -> Trait:
        return Trait(self._binary, self._tasks, self._digest.hexdigest())


def traits(run: Path, by_family: bool) -> dict[Group, Trait]:
    """The traits of each entry's rows.

    Args:
        run: The run directory.
        by_family: Of each family of the entry by itself.
    """
    found: dict[Group, _Growing] = {}
    for row in read(run):
        group = (row.entry, row.family if by_family else None)
        found.setdefault(group, _Growing()).add(row)
    return {group: growing.trait() for group, growing in found.items()}
