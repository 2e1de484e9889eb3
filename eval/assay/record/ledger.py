"""Which questions, tasks and answers were seen: as many as a disk holds, in memory that stays flat.

Counting what is distinct wants all of it kept. It lies in a private database of SQLite's, which keeps a few
megabytes in memory and the rest in a file of the system's temporary directory that has no name and is gone
with the process.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import numpy as np

BATCH = 2048
CHUNK = 16384
# No journal and no waiting for the disk: nothing of it outlives the process.
TABLES = """
pragma temp_store = file; pragma journal_mode = off; pragma synchronous = off;
create table task (family integer, key text, primary key (family, key)) without rowid;
create table answer (family integer, digest text, primary key (family, digest)) without rowid;
create table question (family integer, name text, total real, rows integer, primary key (family, name))
    without rowid;
begin
"""
ADD = {
    "task": "insert or ignore into task values (?, ?)",
    "answer": "insert or ignore into answer values (?, ?)",
    "question": "insert into question values (?, ?, ?, ?) on conflict do update "
    "set total = total + excluded.total, rows = rows + excluded.rows",
}
# Of all families, and of one.
READ = (
    "select name, sum(total), sum(rows) from question group by name order by name",
    "select name, total, rows from question where family = ? order by name",
)
COUNT = {
    "task": ("select count(*) from task", "select count(*) from task where family = ?"),
    "answer": (
        "select count(distinct digest) from answer",
        "select count(*) from answer where family = ?",
    ),
    "question": (
        "select count(distinct name) from question",
        "select count(*) from question where family = ?",
    ),
}


class Ledger:
    """What was seen, by family; close it after use."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(TABLES)
        self._waiting: dict[str, list[tuple[object, ...]]] = {name: [] for name in ADD}
        self.repeated = 0

    def task(self, family: int, key: str) -> None:
        """A task whose rows begin; `repeated` counts those that had been there before."""
        self._add("task", (family, key))

    def answer(self, family: int, digest: str) -> None:
        """An answer, by its digest."""
        self._add("answer", (family, digest))

    def question(self, family: int, name: str, total: float, rows: int) -> None:
        """So many more rows that ask a question, and the sum of their rewards."""
        self._add("question", (family, name, total, rows))

    def tasks(self, family: int | None = None) -> int:
        """Distinct tasks, of one family or of all."""
        return self._count("task", family)

    def answers(self, family: int | None = None) -> int:
        """Distinct answers, of one family or of all."""
        return self._count("answer", family)

    def questions(self, family: int | None = None) -> Questions:
        """Distinct questions with their sums, of one family or of all."""
        return Questions(self, family, self._count("question", family))

    def read(self, family: int | None) -> Iterator[tuple[str, float, int]]:
        """Name, sum of rewards and number of rows of each question, by name."""
        self._flush()
        with closing(self._ask(READ, family)) as cursor:
            yield from cursor

    def close(self) -> None:
        """Give the space back."""
        self._database.close()

    def __enter__(self) -> Self:
        """The ledger itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _add(self, table: str, values: tuple[object, ...]) -> None:
        waiting = self._waiting[table]
        waiting.append(values)
        if len(waiting) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        for table, waiting in self._waiting.items():
            if waiting:
                inserted = self._database.executemany(ADD[table], waiting).rowcount
                if table == "task":
                    self.repeated += len(waiting) - inserted
                waiting.clear()

    def _count(self, table: str, family: int | None) -> int:
        self._flush()
        (found,) = self._ask(COUNT[table], family).fetchone()
        return int(found)

    def _ask(self, words: tuple[str, str], family: int | None) -> sqlite3.Cursor:
        everything, one = words
        return (
            self._database.execute(everything) if family is None else self._database.execute(one, (family,))
        )


@dataclass(frozen=True)
class Questions:
    """The questions of one family or of all: what is resampled.

    Attributes:
        ledger: Where they stand.
        family: Which family's; None for all.
        count: How many distinct ones.
    """

    ledger: Ledger
    family: int | None
    count: int

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Sums of rewards and numbers of rows, float64, by the questions' names, `CHUNK` at a time."""
        import numpy as np

        sums, sizes = [], []
        for _, total, rows in self.ledger.read(self.family):
            sums.append(total)
            sizes.append(rows)
            if len(sums) == CHUNK:
                yield np.asarray(sums, np.float64), np.asarray(sizes, np.float64)
                sums, sizes = [], []
        if sums:
            yield np.asarray(sums, np.float64), np.asarray(sizes, np.float64)

    def seed(self) -> int:
        """A seed that follows from which questions were asked, and from nothing else."""
        names = hashlib.sha256()
        for name, _, _ in self.ledger.read(self.family):
            names.update(name.encode("utf-8", "surrogatepass") + b"\n")
        return int.from_bytes(names.digest()[:8], "big")
