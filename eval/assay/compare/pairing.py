"""Rows of two runs, paired by benchmark, task key and rollout, in memory that stays flat.

Both runs' rows go into a private database of SQLite's, as what is distinct does in `assay.record.ledger`:
what a disk holds can be paired, in whatever order either run has it. A row that stands there twice is
refused, since nobody could say which one is the partner.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from assay.errors import VerificationError
from assay.record.sample import Sample, Status
from assay.view.view import Benchmark, View

Letter = Literal["a", "b"]
# Squares of greater ones have no finite sum.
LARGEST_REWARD = 1e100
# No journal and no waiting for the disk: nothing of it outlives the process.
TABLE = """
pragma temp_store = file; pragma journal_mode = off; pragma synchronous = off;
create table row (
    benchmark integer, side text, key text, rollout integer, position integer, family text, cluster text,
    prompt text, output text, status text, reward real, tokens integer, agent_s real, total_s real,
    record text, line integer, primary key (benchmark, key, rollout, side)
) without rowid;
create view pair as select
    a.benchmark as benchmark, a.position as position, coalesce(b.reward, 0) - coalesce(a.reward, 0) as change,
    a.key, a.rollout, a.family,
    a.cluster, a.prompt, a.output, a.status, a.reward, a.tokens, a.agent_s, a.total_s, a.record, a.line,
    b.cluster, b.prompt, b.output, b.status, b.reward, b.tokens, b.agent_s, b.total_s, b.record, b.line
from row as a join row as b
on a.benchmark = b.benchmark and a.key = b.key and a.rollout = b.rollout and a.side = 'a' and b.side = 'b';
create view lone as select * from row as one where not exists (
    select 1 from row as other where other.benchmark = one.benchmark and other.key = one.key
    and other.rollout = one.rollout and other.side <> one.side
);
begin
"""
INSERT = "insert into row values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
PAIRS = "select * from pair where benchmark = ? order by position"
FLIPS = """select * from pair where benchmark = ? and change <> 0
order by change > 0, abs(change) desc, position limit ?"""
COUNT = "select count(*) from lone where benchmark = ? and side = ?"
LONE = "select key, rollout from lone where benchmark = ? and side = ? order by position limit ?"
# How many columns each half of a pair has.
HALF = 10


@dataclass(frozen=True, slots=True)
class Row:
    """What a comparison needs of one rollout; see `Sample`."""

    cluster: str
    prompt: str | None
    output: str | None
    status: Status
    reward: float | None
    tokens: int | None
    agent_s: float | None
    total_s: float | None
    record: str | None
    line: int | None

    @property
    def value(self) -> float:
        """Its reward; 0 where it has none, as in every score."""
        return self.reward or 0.0

    @property
    def failed(self) -> bool:
        """It has no score: errored or missing."""
        return self.reward is None


@dataclass(frozen=True, slots=True)
class Pair:
    """One rollout of a task, as both runs have it."""

    task_key: str
    rollout: int
    family: str
    a: Row
    b: Row

    @property
    def change(self) -> float:
        """B's reward minus A's."""
        return self.b.value - self.a.value


class Places:
    """Which benchmark a row belongs to.

    Args:
        benchmarks: Those that both runs have, in the order of their numbers.
    """

    def __init__(self, benchmarks: Sequence[Benchmark]) -> None:
        self._names = [found.name for found in benchmarks]
        self._numbers = {(found.entry, found.family): number for number, found in enumerate(benchmarks)}

    def number(self, sample: Sample) -> int | None:
        """The benchmark's number; None where it is none of them."""
        own = self._numbers.get((sample.entry, sample.family))
        return self._numbers.get((sample.entry, None)) if own is None else own

    def name(self, sample: Sample) -> str | None:
        """The benchmark's name; None where it is none of them."""
        number = self.number(sample)
        return None if number is None else self._names[number]


class Pairing:
    """Two runs' rows; close it after use."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(TABLE)

    def read(self, side: Letter, view: View, places: Places) -> None:
        """Take every row of a run that belongs to one of the benchmarks.

        Raises:
            VerificationError: a row cannot be read, stands there twice, or has numbers beyond all reckoning.
        """
        for position, row in enumerate(view.samples()):
            number = places.number(row)
            if number is None:
                continue
            if row.reward is not None and abs(row.reward) > LARGEST_REWARD:
                raise _unfit(view, row, f"its reward is {row.reward}, which no sum can hold")
            try:
                key, *rest = _stored(row)
                self._database.execute(INSERT, (number, side, key, row.rollout, position, *rest))
            except sqlite3.IntegrityError:
                raise VerificationError(
                    f"{view.run}: {row.entry}: rollout {row.rollout} of {row.task_key} stands there twice",
                    "one of them has no partner, and nobody can say which",
                    f"assay audit {view.run}",
                ) from None
            except OverflowError:
                raise _unfit(
                    view, row, "one of its numbers is no number of tokens, lines or rollouts"
                ) from None

    def pairs(self, benchmark: int) -> Iterator[Pair]:
        """Every pair of a benchmark, in A's order."""
        return self._pairs(PAIRS, (benchmark,))

    def flips(self, benchmark: int, limit: int | None) -> Iterator[Pair]:
        """Pairs with other rewards: losses first, the largest change first.

        Args:
            benchmark: Its number.
            limit: At most so many; None for all.
        """
        return self._pairs(FLIPS, (benchmark, -1 if limit is None else min(limit, sys.maxsize)))

    def alone(self, side: Letter, benchmark: int, shown: int) -> tuple[int, tuple[str, ...]]:
        """How many rows of a side have no partner, and the first of them by task and rollout."""
        (count,) = self._database.execute(COUNT, (benchmark, side)).fetchone()
        found = self._database.execute(LONE, (benchmark, side, shown))
        return int(count), tuple(f"{_read(key)}, rollout {rollout}" for key, rollout in found)

    def close(self) -> None:
        """Give the space back."""
        self._database.close()

    def __enter__(self) -> Self:
        """The pairing itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _pairs(self, words: str, values: Sequence[object]) -> Iterator[Pair]:
        with closing(self._database.execute(words, values)) as cursor:
            for columns in cursor:
                _, _, _, key, rollout, family, *halves = map(_read, columns)
                yield Pair(key, rollout, family, Row(*halves[:HALF]), Row(*halves[HALF:]))


def _unfit(view: View, row: Sample, why: str) -> VerificationError:
    return VerificationError(
        f"{view.run}: {row.entry}: rollout {row.rollout} of {row.task_key} cannot be compared",
        why,
        f"assay audit {view.run}",
    )


def _stored(row: Sample) -> Iterator[object]:
    """Columns from the key on; texts as bytes, since a stranger's may hold half a surrogate pair."""
    values = (
        row.task_key,
        row.family,
        row.cluster,
        row.prompt_digest,
        row.output_digest,
        row.status,
        row.reward,
        row.completion_tokens,
        row.seconds.agent_s,
        row.seconds.total_s,
        row.record,
        row.line,
    )
    for value in values:
        yield value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _read(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
