"""The published form of a run as its readers hold it: the figures and conditions of the run, and no exchange.

It is laid out as the run was, so it is read as the run is. What it says of rows was taken out of the run's
own by whoever published it (`assay.export`); the audit says what of it can be held against the signature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.export.contents import load
from assay.record.sample import Sample
from assay.view.view import Benchmark, Exchange, Fact, Kind, View


class ExportView:
    """See `assay.view.view.View`.

    Args:
        run: Its directory.
        inner: The same directory, read as a run.

    Raises:
        VerificationError: what it lists cannot be read.
    """

    kind: Kind = "export"

    def __init__(self, run: Path, inner: View) -> None:
        self.run = run
        self._inner = inner
        self._contents = load(run)
        self.name = inner.name
        self.description = inner.description
        self.status = inner.status
        self.started = inner.started
        self.ended = inner.ended
        self.model = inner.model
        self.server = inner.server

    def facts(self) -> tuple[Fact, ...]:
        """See `View`."""
        count = len(self._contents.omitted)
        told = f"of the {self._contents.kind}'s run; {count} file(s) of it were left out"
        return (Fact("export", told, "claimed"), *self._inner.facts())

    def benchmarks(self) -> tuple[Benchmark, ...]:
        """See `View`."""
        return self._inner.benchmarks()

    def samples(self) -> Iterator[Sample]:
        """See `View`; which answers were the same bytes as another run's, no export tells."""
        nothing = {"answer_digest": None, "output_digest": None}
        for sample in self._inner.samples():
            yield sample.model_copy(update=nothing)

    def exchanges(self) -> Iterator[tuple[Sample, Exchange | None]]:
        """No exchange is published."""
        for sample in self.samples():
            yield sample, None

    def exchange(self, sample: Sample) -> Exchange | None:
        """No exchange is published."""
        return None

    def summary(self) -> Mapping[str, Any]:
        """See `View`."""
        return self._inner.summary()
