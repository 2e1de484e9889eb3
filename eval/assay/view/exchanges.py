"""From rows to what was said in them: each record's own reader, and one clock for all of a run's rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from assay.record.sample import Sample
from assay.view.lines import Lines
from assay.view.view import Exchange

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, OSError)


class Reader(Protocol):
    """Reads the records of one evaluator; it may raise what `UNREADABLE` names."""

    def exchange(self, sample: Sample, lines: Lines) -> Exchange | None:
        """What a row's record says, `started` as seconds since 1970; None where the run has none of it."""

    def began(self, sample: Sample, lines: Lines) -> float | None:
        """When the rollout began, in seconds since 1970; None where nobody measured."""


@dataclass
class Exchanges:
    """The exchanges of a run.

    Attributes:
        lines: The run's native records.
        samples: Begins to read its rows.
        reader: Which reader a row's record wants; None where there is none for it.
    """

    lines: Lines
    samples: Callable[[], Iterable[Sample]]
    reader: Callable[[Sample], Reader | None]

    def one(self, sample: Sample) -> Exchange | None:
        """A row's exchange; of a record that cannot be read it says why, as its error."""
        reader = self.reader(sample)
        if reader is None or sample.record is None:
            return None
        try:
            found = reader.exchange(sample, self.lines)
        except UNREADABLE as error:
            return Exchange(error=f"its record cannot be read: {type(error).__name__}: {error}")
        if found is None or found.started is None or self._first is None:
            return found
        return replace(found, started=round(max(0.0, found.started - self._first), 4))

    def all(self) -> Iterator[tuple[Sample, Exchange | None]]:
        """Every row with its exchange."""
        for sample in self.samples():
            yield sample, self.one(sample)

    @cached_property
    def _first(self) -> float | None:
        return min(
            (began for sample in self.samples() if (began := self._began(sample)) is not None), default=None
        )

    def _began(self, sample: Sample) -> float | None:
        reader = self.reader(sample)
        if reader is None or sample.record is None:
            return None
        try:
            return reader.began(sample, self.lines)
        except UNREADABLE:
            return None
