"""Sums that stay exact, and small, over any number of rows."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

HELD = 4096


class ExactSum:
    """A sum of floats that rounds once, at its end."""

    def __init__(self) -> None:
        self._held: Counter[float] = Counter()
        self._folded = Fraction(0)

    def add(self, value: float, times: int = 1) -> None:
        """Add a finite value so often."""
        self._held[value] += times
        if len(self._held) > HELD:
            self._fold()

    def merge(self, other: ExactSum) -> None:
        """Add another sum."""
        self._fold()
        self._folded += other._folded + sum(Fraction(value) * times for value, times in other._held.items())

    @property
    def value(self) -> float:
        """The sum."""
        self._fold()
        return float(self._folded)

    def _fold(self) -> None:
        self._folded += sum(Fraction(value) * times for value, times in self._held.items())
        self._held.clear()


class Tokens:
    """Tokens of rows that tell theirs.

    Attributes:
        rows: How many tell.
        total: Their tokens.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0

    def add(self, count: int | None) -> None:
        """A row's tokens; None where it tells none."""
        if count is not None:
            self.rows += 1
            self.total += count

    def merge(self, other: Tokens) -> None:
        """Add another's."""
        self.rows += other.rows
        self.total += other.total
