"""A Git mirror with the stand-in for Prime Envs at the two revisions that the test pins name.

The repository is made from `tests/prime_envs/` with fixed names and dates, so its commits are the same on
every machine: first the direct lane's revision, then the current one. `python -m pinned.mirror FOLDER`, in
tests/, makes one and prints both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TREES = Path(__file__).parents[1] / "prime_envs"
REPOSITORY = "prime-envs"
DATES = {"direct": "2026-05-01T12:00:00+00:00", "current": "2026-08-01T12:00:00+00:00"}
IGNORED = shutil.ignore_patterns("__pycache__", "*.py[co]", ".*")


@dataclass(frozen=True)
class Mirror:
    """A directory of bare repositories, one for each upstream.

    Attributes:
        path: The directory: `<name>.git` for each repository.
        revisions: Commit by tree: `direct` and `current`.
    """

    path: Path
    revisions: dict[str, str]

    @property
    def repository(self) -> Path:
        """The stand-in for Prime Envs."""
        return self.path / f"{REPOSITORY}.git"


def make(folder: Path) -> Mirror:
    """Make the mirror in an empty or absent folder."""
    bare = folder / f"{REPOSITORY}.git"
    bare.mkdir(parents=True)
    git(bare, "init", "--quiet", "--bare", "--initial-branch=main", "--object-format=sha1", ".")
    revisions: dict[str, str] = {}
    parent: list[str] = []
    for tree, date in DATES.items():
        with tempfile.TemporaryDirectory() as scratch:
            work = Path(scratch) / "tree"
            shutil.copytree(TREES / tree, work, ignore=IGNORED)
            for path in work.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
            git(bare, f"--work-tree={work}", "add", "--force", "--all", ".", index=work.parent / "index")
            written = git(bare, "write-tree", index=work.parent / "index")
        commit = git(bare, "commit-tree", written, *parent, "-m", f"Environments: {tree}", date=date)
        git(bare, "update-ref", "refs/heads/main", commit)
        revisions[tree] = commit
        parent = ["-p", commit]
    return Mirror(folder, revisions)


def git(folder: Path, *words: str, index: Path | None = None, date: str = "") -> str:
    """What Git prints, run in the folder with nothing of the user's configuration."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_DIR": str(folder),
        "GIT_AUTHOR_NAME": "A stand-in",
        "GIT_AUTHOR_EMAIL": "standin@example.invalid",
        "GIT_COMMITTER_NAME": "A stand-in",
        "GIT_COMMITTER_EMAIL": "standin@example.invalid",
        **({"GIT_INDEX_FILE": str(index)} if index else {}),
        **({"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else {}),
    }
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    for name, revision in make(Path(sys.argv[1])).revisions.items():
        print(f"{name} {revision}")
