"""What each evaluator's records mean: the readers, by the name of the evaluator's dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from assay.record.episodes import EpisodeReader
from assay.record.native import Row
from assay.record.results_v0 import ResultsReader


class Reader(Protocol):
    """Reads the native record of one invocation of the evaluator, which has a folder of its own."""

    def record(self, folder: Path) -> Path:
        """The file that grows by one line a rollout; it need not be there yet."""

    def rows(self, folder: Path) -> Iterator[Row]:
        """Every whole line of it; VerificationError where one cannot be read."""


READERS: Mapping[str, Reader] = {
    "vf-eval": EpisodeReader(own_key=True),
    "eval": EpisodeReader(own_key=False),
    "vf-eval-v0": ResultsReader(),
}


def of(dialect: str) -> Reader:
    """The reader of that dialect's records."""
    return READERS[dialect]
