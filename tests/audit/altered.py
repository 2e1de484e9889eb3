"""A run directory that a test changes, and the manifest that a liar would make for it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTSIDE = frozenset({"manifest.json", "lock", "statement.dsse.json", "report.html"})


@dataclass(frozen=True)
class Altered:
    """A copy of an honest run."""

    run: Path

    def json(self, name: str, change: Callable[[Any], object]) -> None:
        """Change the JSON value in a file and write it in the form that the run writes."""
        path = self.run / name
        value = json.loads(path.read_text("utf-8"))
        change(value)
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")

    def lines(self, name: str, change: Callable[[list[Any]], object]) -> None:
        """Change the records of a JSONL file."""
        path = self.run / name
        values = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        change(values)
        path.write_text("".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values))

    def text(self, name: str, before: str, after: str) -> None:
        """Replace a text that a file must hold."""
        path = self.run / name
        content = path.read_text("utf-8")
        assert before in content
        path.write_text(content.replace(before, after, 1), "utf-8")

    def reseal(self) -> None:
        """Make the manifest again, as a liar would: only computing again can find the change now."""
        files = {}
        for folder, folders, names in os.walk(self.run):
            for name in [*folders, *names]:
                path = Path(folder) / name
                relative = path.relative_to(self.run).as_posix()
                if path.is_symlink():
                    files[relative] = f"link:{path.readlink()}"
                elif path.is_file() and relative not in OUTSIDE:
                    files[relative] = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        self.json("manifest.json", lambda value: value.update(files=dict(sorted(files.items()))))
