"""What the pairs of one benchmark come to, counted as they pass, in memory that stays flat."""

from __future__ import annotations

import math
import statistics
from array import array
from typing import Self

from assay.compare.comparison import Shift, Signs, Speed, Tokens
from assay.compare.paired import ratio, signs
from assay.compare.pairing import Pair, Row
from assay.record.ledger import Ledger, Questions
from assay.record.statistics import CONFIDENCE, SPREAD, Spread
from assay.record.sums import ExactSum

# What is counted of a question, as the ledger's families.
ALL, KEPT, BOTH, TOKENS, CUT, FAILED = range(6)
# Tokens a sample over the reference's: outside it, speed is bought with shorter answers (MLPerf inference).
BAND = (0.9, 1.1)


class Differences:
    """Differences of pairs: B's reward minus A's.

    Args:
        ledger: Where questions are kept apart.
        number: The family's number there.
    """

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger, self._number = ledger, number
        self._sum = ExactSum()
        self._lowest, self._highest = math.inf, -math.inf
        self.rows = 0

    def add(self, question: str, difference: float) -> None:
        """One more pair."""
        self._ledger.question(self._number, question, difference, 1)
        self._sum.add(difference)
        self._lowest, self._highest = min(self._lowest, difference), max(self._highest, difference)
        self.rows += 1

    @property
    def questions(self) -> Questions:
        """The questions, each with its sum."""
        return self._ledger.questions(self._number)

    @property
    def spread(self) -> Spread:
        """Of the differences; of at least one."""
        return Spread(self._lowest, self._highest, self._sum.value, self.rows, 0, False)


class Happened:
    """How often something happened on each side."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger, self._number = ledger, number
        self.a = self.b = self.pairs = 0

    def add(self, question: str, a: bool, b: bool) -> None:
        """One more pair."""
        self._ledger.question(self._number, question, float(b) - float(a), 1)
        self.a += a
        self.b += b
        self.pairs += 1

    def result(self) -> Shift:
        """The shift, over at least one pair."""
        found: Signs = signs(self._ledger.questions(self._number))
        return Shift(
            a=self.a,
            b=self.b,
            a_share=round(self.a / self.pairs, 6),
            b_share=round(self.b / self.pairs, 6),
            signs=found,
            shifted=found.p <= 1 - CONFIDENCE,
        )


class Evidence:
    """The pairs of one benchmark.

    Attributes:
        all: Differences of all pairs.
        kept: The same, but a pair in which a row failed or was cut is never counted for B.
        both: Differences of pairs with a score on both sides.
        cut: A limit cut the answer.
        failed: The rollout has no score.
        flips: Pairs with other rewards.
        withheld: Pairs that favour B in `all` and not in `kept`.
        binary: Every reward is 0 or 1.
        same: Pairs with the same output, byte for byte; None where no pair tells.
        unsteady: Of these, pairs with other rewards.
    """

    def __init__(self) -> None:
        self._ledger = Ledger()
        self.all = Differences(self._ledger, ALL)
        self.kept = Differences(self._ledger, KEPT)
        self.both = Differences(self._ledger, BOTH)
        self.cut = Happened(self._ledger, CUT)
        self.failed = Happened(self._ledger, FAILED)
        self.flips = 0
        self.withheld = 0
        self.binary = True
        self.same: int | None = None
        self.unsteady = 0
        self._a, self._b = ExactSum(), ExactSum()
        self._lowest, self._highest = math.inf, -math.inf
        self._tokens = [0, 0, 0]
        self._seconds = array("d"), array("d")
        self._timed = [0, 0]

    def add(self, pair: Pair) -> None:
        """One more pair; its question is the one that A asked."""
        a, b, change = pair.a, pair.b, pair.change
        # A stranger's record may hold half a surrogate pair, which no database takes.
        question = a.cluster.encode("utf-8", "backslashreplace").decode("utf-8")
        self.all.add(question, change)
        self.flips += change != 0
        doubtful = any(row.failed or row.status == "truncated" for row in (a, b))
        self.kept.add(question, min(change, 0.0) if doubtful else change)
        self.withheld += doubtful and change > 0
        if not (a.failed or b.failed):
            self.both.add(question, change)
        self.cut.add(question, a.status == "truncated", b.status == "truncated")
        self.failed.add(question, a.failed, b.failed)
        for row, total in ((a, self._a), (b, self._b)):
            total.add(row.value)
            self.binary = self.binary and row.value in (0.0, 1.0)
            self._lowest, self._highest = min(self._lowest, row.value), max(self._highest, row.value)
        if a.output is not None and b.output is not None:
            self.same = (self.same or 0) + (a.output == b.output)
            self.unsteady += a.output == b.output and change != 0
        self._measure(question, a, b)

    @property
    def scores(self) -> tuple[float, float]:
        """A's and B's mean reward over the pairs."""
        return self._a.value / self.all.rows, self._b.value / self.all.rows

    @property
    def span(self) -> float:
        """How far a difference can go: the rewards' range, as far as it was seen."""
        return 1.0 if self.binary else self._highest - self._lowest

    def single(self, differences: Differences) -> bool:
        """Whether McNemar's test is exact for them: right or wrong, and each question has one pair."""
        return self.binary and differences.questions.count == differences.rows

    def tokens(self) -> Tokens | None:
        """Tokens a rollout; None where no pair tells."""
        pairs, a, b = self._tokens
        if not pairs:
            return None
        # The ledger holds B's tokens as a question's sum and A's as its rows: their ratio is its mean.
        spread = Spread(0.0, math.inf, float(b), a, 0, False)
        return Tokens(
            pairs=pairs,
            a=round(a / pairs, 3),
            b=round(b / pairs, 3),
            ratio=round(b / a, 6),
            bounds=ratio(self._ledger.questions(TOKENS), spread),
            within=BAND[0] <= b / a <= BAND[1],
        )

    def speed(self) -> Speed | None:
        """Seconds and tokens of the same pairs; None where no pair tells."""
        a, b = self._seconds
        if not a:
            return None
        return Speed(
            pairs=len(a),
            a_seconds=round(statistics.median(a), 3),
            b_seconds=round(statistics.median(b), 3),
            a_tokens_per_s=round(self._timed[0] / math.fsum(a), 3),
            b_tokens_per_s=round(self._timed[1] / math.fsum(b), 3),
        )

    def close(self) -> None:
        """Give the space back."""
        self._ledger.close()

    def __enter__(self) -> Self:
        """The evidence itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _measure(self, question: str, a: Row, b: Row) -> None:
        if a.failed or b.failed or not a.tokens or not b.tokens:
            return
        self._ledger.question(TOKENS, question, float(b.tokens), a.tokens)
        for index, value in enumerate((1, a.tokens, b.tokens)):
            self._tokens[index] += value
        both = [(a.agent_s, b.agent_s), (a.total_s, b.total_s)]
        for first, second in both:
            if first is not None and second is not None and first > SPREAD and second > SPREAD:
                self._seconds[0].append(first)
                self._seconds[1].append(second)
                self._timed[0] += a.tokens
                self._timed[1] += b.tokens
                return
