r"""`events.jsonl`: what happened in a run, one event a line, only ever appended to.

A line is `{"n": 7, "at": "<UTC>", "kind": "job-started", ...}`; `n` counts from 1 over the run and all its
resumes, so that a line that went missing shows. Opening cuts off a torn last line and notes that as an event.
Secrets are taken out here and not by those who report. Writing never raises on a full disk, since events come
from deep inside: whoever conducts the run is told instead, once, and ends it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from assay.coordinator.redact import Secrets
from assay.errors import AssayError, VerificationError
from assay.files import JsonlWriter, read_jsonl
from assay.run.state import now

NAME = "events.jsonl"
TORN = "tail-repaired"
SET_ASIDE = "answers-set-aside"
REMOVED = "partial-removed"


class Events:
    """The writer of a run's events; any thread may call it.

    Args:
        run: The run directory.
        secrets: What must not be written.
        full: Told, once, the error of the first event that could not be written.
    """

    def __init__(self, run: Path, secrets: Secrets, full: Callable[[Exception], None]) -> None:
        self._secrets = secrets
        self._full = full
        self._failed = False
        self._lock = threading.Lock()
        self._writer = JsonlWriter(run / NAME)
        self._count = last_number(run)
        if self._writer.repaired_bytes:
            self(TORN, {"file": NAME, "bytes_cut": self._writer.repaired_bytes})

    def __call__(self, kind: str, fields: Mapping[str, object]) -> None:
        """Append one event.

        Args:
            kind: What happened.
            fields: More of it, as a JSON object without `n`, `at` and `kind`.
        """
        with self._lock:
            row = {"n": self._count + 1, "at": now(), "kind": kind, **self._secrets.value(dict(fields))}
            try:
                self._writer.append(row)
            except (AssayError, OSError) as error:
                first, self._failed = not self._failed, True
                if first:
                    self._full(error)
                return
            self._count += 1

    def close(self) -> None:
        """Flush to the disk and close."""
        with self._lock:
            try:
                self._writer.close()
            except OSError as error:
                self._full(error)

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def read_events(run: Path) -> Iterator[dict[str, Any]]:
    """A run's events in their order, a torn last line left out.

    Raises:
        VerificationError: a whole line is no event.
    """
    path = run / NAME
    try:
        for number, row in enumerate(read_jsonl(path), start=1):
            if not isinstance(row, dict) or not isinstance(row.get("n"), int):
                raise ValueError(f"line {number} is no event")
            yield row
    except FileNotFoundError:
        return
    except ValueError as error:
        raise VerificationError(f"{path} cannot be read", str(error), f"assay audit {run}") from error


def last_number(run: Path) -> int:
    """The number of the last event; 0 where there is none. A line that cannot be read is passed over."""
    number = 0
    try:
        with (run / NAME).open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line)
                    number = max(number, int(row["n"]))
                except (ValueError, TypeError, KeyError):
                    continue
    except FileNotFoundError:
        return 0
    return number
