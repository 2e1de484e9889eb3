"""How many whole lines a growing file has, at the cost of what it has grown by."""

from __future__ import annotations

from pathlib import Path

CHUNK_BYTES = 1 << 20


class LineCounter:
    """Counts a child's records while it writes them; they are only ever appended to.

    Args:
        path: The file; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0
        self._lines = 0

    def __call__(self) -> int:
        r"""Lines that end in `\n` so far; what was counted stays counted when the file cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                while chunk := file.read(CHUNK_BYTES):
                    self._read_bytes += len(chunk)
                    self._lines += chunk.count(b"\n")
        except OSError:
            pass
        return self._lines
