"""What EvalScope and its wrapper leave, read into rows.

`predictions/` has a line for each sample that was answered and scored, `reviews/` its scores, both in the
order in which samples ended. What was planned stands in `tasks.jsonl`, what failed in `failures.jsonl`; so a
sample that came to nothing keeps its place here, which it has not in EvalScope's own figures.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import VerificationError
from assay.record.native import ERROR_CHARACTERS, read_objects

TASKS = "tasks.jsonl"
FAILURES = "failures.jsonl"
CALLS = "calls.jsonl"
REFUSED = "refused.txt"
MODEL = "model"
"""What EvalScope calls the model in its paths, whatever its name is."""

INDEX = re.compile(rb'\{"index": (\d{1,12}),')
Place = tuple[str, int]


@dataclass(frozen=True)
class Task:
    """A sample that was going to be asked.

    Attributes:
        subset: Of the benchmark.
        index: Its number there, repeats counted.
        group: The number of its task there.
        rollout: Which repeat of the task it is.
        family: The subset, or a part of it.
        scenario: Of BFCL's memory entries: whose memory is asked about.
        prompt: Digest of what is asked.
        question: Digest of what the first repeat of the task asks.
    """

    subset: str
    index: int
    group: int
    rollout: int
    family: str
    scenario: str | None
    prompt: str
    question: str

    @property
    def place(self) -> Place:
        """Where its records are found."""
        return self.subset, self.index


@dataclass(frozen=True)
class Failure:
    """A sample that came to no answer.

    Attributes:
        error: Kind and message.
        line: In `failures.jsonl`, 1-based.
    """

    error: str
    line: int


@dataclass
class Record:
    """What a job's folder holds, but for predictions and reviews.

    Attributes:
        tasks: What was planned, in order; None where the evaluator did not come so far.
        failures: By place.
        unprepared: Of BFCL's memory entries: why a memory could not be prepared, by subset and scenario.
        calls: Of BFCL: the requests that were answered, by place.
        refused: Why nothing was asked.
        report: EvalScope's own report; None where there is none.
        problems: What of it cannot be believed.
        notes: What else is to be known.
    """

    tasks: list[Task] | None = None
    failures: dict[Place, Failure] = field(default_factory=dict)
    unprepared: dict[tuple[str, str], str] = field(default_factory=dict)
    calls: dict[Place, list[dict[str, Any]]] = field(default_factory=dict)
    refused: str | None = None
    report: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load(folder: Path, dataset: str) -> Record:
    """Read it; what is torn or strange becomes a problem or a note, and never an exception."""
    record = Record()
    if (folder / TASKS).is_file():
        record.tasks = _tasks(record, folder / TASKS)
    for line, value in _objects(record, folder / FAILURES):
        reason = str(value.get("error"))[:ERROR_CHARACTERS]
        index = value.get("index")
        if isinstance(index, int):
            record.failures.setdefault((str(value.get("subset")), index), Failure(reason, line))
        else:
            record.unprepared.setdefault((str(value.get("subset")), str(value.get("scenario"))), reason)
    for _, value in _objects(record, folder / CALLS):
        calls = value.get("calls")
        if isinstance(calls, list) and isinstance(value.get("index"), int):
            record.calls[(str(value.get("subset")), value["index"])] = [
                call for call in calls if isinstance(call, dict)
            ]
    try:
        record.refused = (folder / REFUSED).read_text("utf-8").strip()
    except (OSError, ValueError):
        record.refused = None
    try:
        found = json.loads((folder / "reports" / MODEL / f"{dataset}.json").read_bytes())
        record.report = found if isinstance(found, dict) else None
    except (OSError, ValueError, RecursionError):
        record.report = None
    return record


def _tasks(record: Record, path: Path) -> list[Task]:
    """What was planned; repeats of a task are numbered, and share the question of the first."""
    seen: Counter[Place] = Counter()
    first: dict[Place, str] = {}
    found = []
    for line, value in _objects(record, path):
        try:
            subset, group, prompt = str(value["subset"]), int(value["group"]), str(value["prompt"])
            scenario = value.get("scenario")
            task = Task(
                subset=subset,
                index=int(value["index"]),
                group=group,
                rollout=seen[(subset, group)],
                family=str(value["family"]),
                scenario=None if scenario is None else str(scenario),
                prompt=prompt,
                question=first.setdefault((subset, group), prompt),
            )
        except (KeyError, TypeError, ValueError) as error:
            record.problems.append(f"{path.name} line {line} is no task: {type(error).__name__}: {error}")
            continue
        seen[(subset, group)] += 1
        found.append(task)
    return found


def _objects(record: Record, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The whole lines of a file of the wrapper's; a torn last one was never finished and is left out."""
    try:
        yield from read_objects(path)
    except (VerificationError, OSError) as error:
        record.problems.append(f"{path.name} cannot be read: {error}")


class Lines:
    """One file of EvalScope's, in which each sample's line is found by its index.

    Args:
        path: The file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = False
        self.twice: list[int] = []
        self._places: dict[int, tuple[int, int]] = {}
        try:
            self._index()
        except OSError:
            self._places.clear()

    def __contains__(self, index: int) -> bool:
        return index in self._places

    @property
    def indices(self) -> Iterable[int]:
        """The samples that have a line."""
        return self._places

    def read(self, index: int) -> tuple[int, dict[str, Any]] | None:
        """The line's number and what it says; None when there is none.

        Raises:
            ValueError: it cannot be read.
        """
        if index not in self._places:
            return None
        number, offset = self._places[index]
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                value = json.loads(file.readline())
        except (OSError, RecursionError) as error:
            raise ValueError(f"{self.path.name} line {number}: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f"{self.path.name} line {number} is no object")
        return number, value

    def _index(self) -> None:
        offset = 0
        with self.path.open("rb") as file:
            # A line may hold pictures: only its beginning is looked at, and one at a time.
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    self.torn = True
                    return
                match = INDEX.match(line)
                if match is not None:
                    index = int(match[1])
                    if index in self._places:
                        self.twice.append(index)
                    else:
                        self._places[index] = (number, offset)
                offset += len(line)


def predictions(folder: Path, dataset: str, subset: str) -> Lines:
    """What was answered in a subset."""
    return Lines(folder / "predictions" / MODEL / f"{dataset}_{subset}.jsonl")


def reviews(folder: Path, dataset: str, subset: str) -> Lines:
    """How it was scored."""
    return Lines(folder / "reviews" / MODEL / f"{dataset}_{subset}.jsonl")


def subsets(tasks: list[Task]) -> tuple[str, ...]:
    """The subsets of the tasks, in order."""
    return tuple(dict.fromkeys(task.subset for task in tasks))
