"""A pin set, the cache of task data that belongs to it, and the command under it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from assay.data import store
from hub_standin import lock_entry

REVISION = "5b" * 20
FILES = {
    "README.md": b"---\nlicense: mit\n---\n# Tiny\n",
    "data/train-00000-of-00001.parquet": bytes(range(256)) * 1024,
}
TABLE = "data/train-00000-of-00001.parquet"
# Everything that a fetch of it leaves, but the mark and the lock.
WHOLE = {
    f"hub/datasets--org--tiny/snapshots/{REVISION}/README.md",
    f"hub/datasets--org--tiny/snapshots/{REVISION}/{TABLE}",
    "hub/datasets--org--tiny/refs/main",
}
# The table of a bucket's dataset, but for its digest.
OBJECT = """\
[[dataset]]
name = "needles"
source = "bucket"
bucket = "some_bucket"
size_bytes = 3
files = [
    { part = "short", path = "a (1,2).csv", generation = "17", size_bytes = 3, sha256 = "%s" },
]
"""


@dataclass
class Site:
    """A pin set, the cache that belongs to it, and the command under it."""

    pins: Path
    data: Path
    environment: dict[str, str] = field(default_factory=dict)

    def lock(self, *entries: str) -> None:
        """Write its datasets.lock."""
        (self.pins / "datasets.lock").write_text("".join(entries), "utf-8")

    def tiny(self, **files: bytes) -> None:
        """A lock of one small dataset of the hub."""
        self.lock(lock_entry("tiny", "org/tiny", REVISION, files or FILES))

    @property
    def home(self) -> Path:
        """The folder of that dataset's repository."""
        return self.data / "hub" / "datasets--org--tiny"

    @property
    def snapshot(self) -> Path:
        """Where its files lie."""
        return self.home / "snapshots" / REVISION

    def fill(self) -> None:
        """Lay it out by hand, as a fetch leaves it."""
        with store.own().opened():
            pass
        for path, data in FILES.items():
            (self.snapshot / path).parent.mkdir(parents=True, exist_ok=True)
            (self.snapshot / path).write_bytes(data)
        (self.home / "refs").mkdir()
        (self.home / "refs/main").write_text(REVISION)

    def left(self) -> set[str]:
        """Every file in the cache, but its mark and lock."""
        found = {path.relative_to(self.data).as_posix() for path in self.data.rglob("*") if path.is_file()}
        return found - {store.MARK, store.LOCK}

    def command(self, *words: str) -> list[str]:
        """The command as a list of words."""
        return [sys.executable, "-m", "assay.cli", "data", *words]

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            self.command(*words),
            env={**os.environ, **self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        child = self.start(*words, **variables)
        out, err = child.communicate(timeout=120)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)
