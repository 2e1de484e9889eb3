"""The test pin set made ready in this checkout: sources from the mirror, data from stand-ins, environments.

    site = Site.open(folder)          # or the fixture `pinned`, which has all of it ready
    site.set_up("prime-envs")         # its sources from the Git mirror, its environment from the locks
    site.fetch("all")                 # the rows, over HTTP from the hub's and the bucket's stand-ins
    site.run("run", "smoke", "--dry-run")

Everything goes through the real command under `--pins tests/pins`, so it lies where the pin set puts it,
below `.assay/pins/test/`, and a second test run finds it there: environments by their stamp, sources and data
by the digests of the locks. What was made from other locks than the present ones is removed first, since the
command itself refuses it and repairs nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.digest import sha256_file
from assay.paths import OWNED, ROOT
from bucket_standin import BucketStandIn
from hub_standin import HubStandIn
from pinned import mirror, rows
from pinned.locks import PINS

MADE = OWNED / "pins" / "test"
MARK = MADE / "made-from"
LOCKS = ("prime-envs.lock", "datasets.lock")
LIMIT_S = 900.0


@dataclass(frozen=True)
class Site:
    """The checkout under the test pin set.

    Attributes:
        mirror: The Git mirror its sources come from.
    """

    mirror: mirror.Mirror

    @staticmethod
    def open(folder: Path) -> Site:
        """Make the mirror in a folder, and remove what was made from other locks."""
        now = "".join(f"{sha256_file(PINS / name)}  {name}\n" for name in LOCKS)
        MADE.mkdir(parents=True, exist_ok=True)
        with MADE.with_name("test.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)  # the other worker opens it too
            if not MARK.is_file() or MARK.read_text("utf-8") != now:
                for name in ("sources", "data"):
                    shutil.rmtree(MADE / name, ignore_errors=True)
                MARK.write_text(now, "utf-8")
        return Site(mirror.make(folder / "mirror"))

    def set_up(self, *evaluators: str) -> None:
        """Make the evaluators' sources and environments, where they are not there already."""
        self.done("setup", *evaluators, "--mirror", str(self.mirror.path))

    def fetch(self, *names: str) -> None:
        """Fetch task data from the stand-ins, where it is not there already."""
        with published() as addresses:
            self.done("data", *names, **addresses)

    def words(self, *words: str | Path) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "assay.cli", words[0], "--pins", str(PINS), *map(str, words[1:])]

    def environment(self, **variables: str) -> dict[str, str]:
        """What its commands run with: nothing of the caller's about Assay, the key or the hub."""
        taken = ("ASSAY_", "QWEN_", "HF_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(taken)}
        return {**kept, **variables}

    def run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        return subprocess.run(
            self.words(*words),
            cwd=ROOT,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def done(self, *words: str | Path, **variables: str) -> str:
        """What a verb that must succeed prints."""
        ended = self.run(*words, **variables)
        assert ended.returncode == 0, f"{words}: exit {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout


@contextmanager
def published() -> Iterator[Mapping[str, str]]:
    """The rows, published by stand-ins for hub and bucket; gives the variables that name both."""
    with ExitStack() as stack:
        hub, bucket = (stack.enter_context(made()) for made in (HubStandIn, BucketStandIn))
        for held in rows.repositories():
            hub.add(held.repo, held.revision, held.files, held.large)
        for found in rows.objects():
            bucket.put(found.bucket, found.object, int(found.generation), found.data)
        yield {"HF_ENDPOINT": hub.url, "ASSAY_BUCKET_ENDPOINT": bucket.url}
