"""The rows of one run as columns: what the page's list filters, sorts and draws without unpacking anything.

Names that repeat (families, statuses, errors) stand once in a table, and the column holds their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.record.sample import Sample
from assay.view.view import Exchange

EXCERPT = 140
ERROR = 300
# Read of an answer to make an excerpt of it.
LOOKED_AT = 600

Key = tuple[str, str, int]


class Names:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The text's number; -1 for None."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[str]:
        """Every text, in the order of their numbers."""
        return list(self._numbers)


class Columns:
    """One run's rows by column, and each row's number by entry, task and rollout."""

    def __init__(self, benchmarks: Mapping[tuple[str, str | None], int]) -> None:
        """Begin with no row.

        Args:
            benchmarks: The number of each benchmark, by entry and family (None: every family of the entry).
        """
        self._benchmarks = benchmarks
        self._names = {name: Names() for name in ("family", "status", "error", "finish", "record")}
        self._columns: dict[str, list[Any]] = {}
        self.rows: dict[Key, int] = {}

    def add(self, sample: Sample, exchange: Exchange | None, place: tuple[int, int]) -> None:
        """Take a row; `place` is where its exchange lies."""
        self.rows.setdefault((sample.entry, sample.task_key, sample.rollout), len(self.rows))
        every = self._benchmarks.get((sample.entry, None), -1)
        values = {
            "benchmark": self._benchmarks.get((sample.entry, sample.family), every),
            "family": self._names["family"].number(sample.family),
            "status": self._names["status"].number(sample.status),
            "error": self._names["error"].number(None if sample.error is None else sample.error[:ERROR]),
            "finish": self._names["finish"].number(sample.finish_reason),
            "record": self._names["record"].number(sample.record),
            "line": sample.line,
            "key": sample.task_key,
            "rollout": sample.rollout,
            "reward": sample.reward,
            "tokens": sample.completion_tokens,
            "prompt_tokens": sample.prompt_tokens,
            "seconds": sample.seconds.total_s,
            "started": exchange.started if exchange else None,
            "empty": int(sample.empty),
            "excerpt": excerpt(exchange),
            "chunk": place[0],
            "place": place[1],
        }
        for name, value in values.items():
            self._columns.setdefault(name, []).append(value)

    def value(self) -> dict[str, Any]:
        """Everything, as the page reads it."""
        names = {name: found.texts() for name, found in self._names.items()}
        return {"rows": len(self.rows), "names": names, "columns": self._columns}


def excerpt(exchange: Exchange | None) -> str:
    """The beginning of the last answer, in one line."""
    for message in reversed(exchange.messages if exchange else ()):
        if message.role == "assistant":
            return " ".join(message.text[:LOOKED_AT].split())[:EXCERPT]
    return ""
