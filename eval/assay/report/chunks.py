"""Every rollout's exchange in compressed pieces, within the page's limit of bytes.

A page unpacks one piece when a sample of it is opened, so it carries a long run without holding it in memory.
The pieces are spooled to a file without a name. Where they would make the page too large, long texts are cut
in their middle, all at one length, which follows from how long they are. A cut is data that the page shows,
never a silent end.
"""

from __future__ import annotations

import base64
import gzip
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import IO, Any, Self

from assay.errors import ConfigurationError
from assay.record.sample import Sample
from assay.view.view import Exchange

ROWS = 64
# Of one piece before compression: opening a sample shall not wait for its neighbours.
PIECE_BYTES = 1 << 20
LEVEL = 6
POWERS = range(4, 21)
"""Lengths that texts may be cut at, in characters, as powers of two; nothing longer than the last is kept."""
# What the page's index of rows tells already.
INDEXED = {"entry", "task_key", "rollout", "family", "reward", "status", "error", "record", "line"}


class Chunks:
    """The pieces of one run, in the order in which its rows were added.

    A context manager: what it spooled is gone when the block ends.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._whole = self._stack.enter_context(spool())
        self._shown = self._whole
        self._waiting: list[str] = []
        self._length = 0
        self._kept = dict.fromkeys(POWERS, 0)
        self.cut_at: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, sample: Sample, exchange: Exchange | None) -> tuple[int, int]:
        """Take a row and return where it will be: the piece, and its place there."""
        place = (len(self._whole.ends), len(self._waiting))
        value = {
            "row": sample.model_dump(mode="json", exclude=INDEXED, exclude_none=True),
            "exchange": None if exchange is None else cut(asdict(exchange), 1 << POWERS[-1]),
        }
        self._measure(value["exchange"])
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._waiting.append(text)
        self._length += len(text)
        if len(self._waiting) == ROWS or self._length >= PIECE_BYTES:
            self._flush()
        return place

    @property
    def size(self) -> int:
        """Bytes that the pieces take in the page."""
        self._flush()
        return self._shown.size

    def fit(self, limit: int) -> None:
        """Cut long texts until the pieces take at most `limit` bytes; `cut_at` is then their length.

        Raises:
            ConfigurationError: they take more even then.
        """
        whole = self.size
        longest = max(self._kept.values()) or 1
        for power in reversed(POWERS):
            if self.size <= limit:
                return
            # What a shorter text compresses to is guessed; what came out of it is measured.
            if whole * self._kept[power] / longest <= limit or power == POWERS[0]:
                self._shown = self._stack.enter_context(spool())
                for text in self._whole:
                    items = [cut(item, 1 << power) for item in json.loads(text)]
                    self._shown.append(json.dumps(items, ensure_ascii=False, separators=(",", ":")))
                self.cut_at = 1 << power
        if self.size > limit:
            raise ConfigurationError(
                f"a report of this run would take {self.size:,} bytes",
                f"at most {limit:,} are allowed, and no text of it is long",
                "report a run of fewer samples; assay compare and assay summarize take any number",
            )

    def encoded(self) -> Iterator[str]:
        """Each piece as the page holds it: JSON, compressed, in letters that no markup has."""
        self._flush()
        return self._shown.encoded()

    def _measure(self, value: Any) -> None:
        if isinstance(value, str):
            for power in POWERS:
                self._kept[power] += min(len(value), 1 << power)
        elif isinstance(value, dict | list | tuple):
            for item in value.values() if isinstance(value, dict) else value:
                self._measure(item)

    def _flush(self) -> None:
        if self._waiting:
            self._whole.append(f"[{','.join(self._waiting)}]")
            self._waiting, self._length = [], 0


class Spool:
    """Compressed texts in a file; `ends` are their ends in it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.ends: list[int] = []
        self.size = 0
        self._file = file

    def append(self, text: str) -> None:
        """Add a text."""
        data = packed(text)
        self._file.write(data)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(data))
        self.size += 4 * -(-len(data) // 3)

    def __iter__(self) -> Iterator[str]:
        """Every text."""
        for data in self._pieces():
            yield gzip.decompress(data).decode("utf-8")

    def encoded(self) -> Iterator[str]:
        """Every text, compressed, in letters."""
        for data in self._pieces():
            yield base64.b64encode(data).decode("ascii")

    def _pieces(self) -> Iterator[bytes]:
        begin = 0
        for end in self.ends:
            # Others may read between two pieces.
            self._file.seek(begin)
            yield self._file.read(end - begin)
            begin = end
        self._file.seek(begin)


@contextmanager
def spool() -> Iterator[Spool]:
    """An empty spool, whose file has no name and is gone when the block ends."""
    with tempfile.TemporaryFile() as file:
        yield Spool(file)


def packed(text: str) -> bytes:
    """A JSON text compressed, the same bytes each time.

    A lone surrogate out of a stranger's record is no UTF-8; written as an escape it is still the same JSON.
    """
    return gzip.compress(text.encode("utf-8", "backslashreplace"), LEVEL, mtime=0)


def cut(value: Any, length: int) -> Any:
    """The value with every text longer than `length` as `[its head, characters left out, its tail]`."""
    if isinstance(value, str) and len(value) > length:
        tail = length // 3
        return [value[: length - tail], len(value) - length, value[-tail:]]
    if isinstance(value, dict):
        return {key: cut(item, length) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cut(item, length) for item in value]
    return value
