"""What rows come to, counted as they pass: one task's rollouts at a time, in memory that stays flat.

Profiles and suites count with this and with nothing else, so that the same rows have the same figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict

from assay.record.ledger import Ledger
from assay.record.repeats import RepeatsTally
from assay.record.sample import Sample
from assay.record.statistics import Spread
from assay.record.sums import ExactSum, Tokens


class Counts(BaseModel):
    """How many rollouts were planned, and what became of them; those from `empty` on are told beside.

    Attributes:
        planned: All of them.
        scored: They came to their end and have a score.
        errored: They failed.
        truncated: A limit cut the answer, which was scored all the same.
        missing: They never happened.
        empty: Of those with a score: the answer has no visible text.
        thought_only: Of the empty ones: the model thought, and then said nothing.
        unparsed: Of those with a score: the scorer found no answer in it; None where no row tells.
        duplicates: Tasks that ask what another one asks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    planned: int
    scored: int
    errored: int
    truncated: int
    missing: int
    empty: int
    thought_only: int
    unparsed: int | None
    duplicates: int

    @property
    def answered(self) -> int:
        """Rollouts with a score: scored and truncated-and-scored."""
        return self.scored + self.truncated

    @property
    def truncated_rate(self) -> float | None:
        """The share of rollouts with a score that a limit cut; None where none has a score."""
        return share(self.truncated, self.answered)


class Zeros(BaseModel):
    """Rollouts that scored nothing, each under the first of these that it is: why a zero is a zero.

    Attributes:
        truncated: A limit cut the answer.
        thought_only: The model thought, and then said nothing.
        empty: It said nothing.
        unparsed: The scorer found no answer in what it said.
        wrong: None of these: an answer, and a wrong one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    truncated: int
    thought_only: int
    empty: int
    unparsed: int
    wrong: int


class Tally:
    """The rows of one family, or of several after `merge`.

    Args:
        ledger: Where questions, tasks and answers are kept apart.
        family: The family's number there; None for all of them.
    """

    def __init__(self, ledger: Ledger, family: int | None) -> None:
        self.ledger = ledger
        self.family = family
        self.tasks = 0
        self.statuses: Counter[str] = Counter()
        self.zeros: Counter[str] = Counter()
        self.empty = 0
        self.thought_only = 0
        self.unparsed: int | None = None
        self.rewards = ExactSum()
        self.named: dict[str, ExactSum] = {}
        self.right = 0
        self.binary = True
        self.lowest: float | None = None
        self.highest: float | None = None
        self.prompt = Tokens()
        self.completion = Tokens()
        self.repeats = RepeatsTally()

    def add(self, rows: Sequence[Sample]) -> None:
        """All rollouts of a task, at least one."""
        number = self.family or 0
        self.tasks += 1
        self.ledger.task(number, rows[0].task_key)
        questions: dict[str, tuple[float, int]] = {}
        for row in rows:
            self._row(row)
            total, count = questions.get(row.cluster, (0.0, 0))
            questions[row.cluster] = total + (row.reward or 0.0), count + 1
            if row.answer_digest:
                self.ledger.answer(number, row.answer_digest)
        for name, (total, count) in questions.items():
            self.ledger.question(number, name, total, count)
        self.repeats.add(rows)

    def merge(self, other: Tally) -> Self:
        """Add another family's rows; the ledger is the same."""
        self.tasks += other.tasks
        self.statuses.update(other.statuses)
        self.zeros.update(other.zeros)
        self.empty += other.empty
        self.thought_only += other.thought_only
        if other.unparsed is not None:
            self.unparsed = (self.unparsed or 0) + other.unparsed
        self.rewards.merge(other.rewards)
        for name, summed in other.named.items():
            self.named.setdefault(name, ExactSum()).merge(summed)
        self.right += other.right
        self.binary = self.binary and other.binary
        for value in (other.lowest, other.highest):
            self._between(value)
        self.prompt.merge(other.prompt)
        self.completion.merge(other.completion)
        self.repeats.merge(other.repeats)
        return self

    @property
    def planned(self) -> int:
        """Rows seen."""
        return self.statuses.total()

    def counts(self) -> Counts:
        """What became of them."""
        return Counts(
            planned=self.planned,
            scored=self.statuses["scored"],
            errored=self.statuses["errored"],
            truncated=self.statuses["truncated"],
            missing=self.statuses["missing"],
            empty=self.empty,
            thought_only=self.thought_only,
            unparsed=self.unparsed,
            duplicates=max(0, self.tasks - self.ledger.questions(self.family).count),
        )

    def spread(self) -> Spread:
        """Their rewards, a failed row's being 0."""
        return Spread(
            lowest=self.lowest or 0.0,
            highest=self.highest or 0.0,
            total=self.rewards.value,
            rows=self.planned,
            right=self.right,
            binary=self.binary,
        )

    def _row(self, row: Sample) -> None:
        self.statuses[row.status] += 1
        self.prompt.add(row.prompt_tokens)
        self.completion.add(row.completion_tokens)
        reward = row.reward or 0.0
        self.rewards.add(reward)
        self._between(reward)
        self.right += reward == 1.0
        self.binary = self.binary and reward in (0.0, 1.0)
        for name, value in row.rewards.items():
            self.named.setdefault(name, ExactSum()).add(value)
        if row.reward is None:
            return
        if row.unparsed is not None:
            self.unparsed = (self.unparsed or 0) + row.unparsed
        self.empty += row.empty
        self.thought_only += row.empty and row.thinking is True
        if row.reward == 0.0:
            self.zeros[_why(row)] += 1

    def _between(self, value: float | None) -> None:
        if value is not None:
            self.lowest = value if self.lowest is None else min(self.lowest, value)
            self.highest = value if self.highest is None else max(self.highest, value)


def share(part: int, whole: int) -> float | None:
    """A share to six decimals; None of nothing."""
    return round(part / whole, 6) if whole else None


def _why(row: Sample) -> str:
    if row.status == "truncated":
        return "truncated"
    if row.empty:
        return "thought_only" if row.thinking else "empty"
    return "unparsed" if row.unparsed else "wrong"
