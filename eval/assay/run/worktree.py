"""The checkout a run was made from: commit, and whether its files are the commit's.

A dirty tree is no crime, but a run made from one must say so: the digest of the difference is recorded, not
the difference, since it may hold what its author would not publish.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from assay.digest import sha256_bytes, sha256_file
from assay.errors import PrerequisiteError
from assay.paths import ROOT


class Worktree(BaseModel):
    """What git says of the checkout.

    Attributes:
        commit: Full hash of HEAD; None before the first commit or outside git.
        clean: No tracked file differs, no untracked file stands beside them.
        changed: Paths that differ or are untracked, sorted.
        diff_sha256: Over the binary diff against HEAD and the untracked files' digests.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str | None
    clean: bool
    changed: tuple[str, ...]
    diff_sha256: str


def _git(*words: str) -> bytes | None:
    command = ["git", "-C", str(ROOT), "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    except FileNotFoundError as error:
        raise PrerequisiteError(
            "git is not installed", "a run records its commit", "apt-get install git"
        ) from error
    return done.stdout if done.returncode == 0 else None


def look() -> Worktree:
    """What the checkout is now; a checkout that is no git repository has no commit and is never clean.

    Raises:
        PrerequisiteError: git is not installed.
    """
    head = _git("rev-parse", "--verify", "HEAD")
    status = _git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    if head is None or status is None:
        return Worktree(commit=None, clean=False, changed=(), diff_sha256=sha256_bytes(b""))
    changes = [item.decode("utf-8", errors="surrogateescape") for item in status.split(b"\0") if item]
    untracked = sorted(item[3:] for item in changes if item.startswith("??"))
    parts = [_git("diff", "--binary", "HEAD") or b""]
    parts += [
        f"{name} {_digest(ROOT / name)}\n".encode("utf-8", errors="surrogateescape") for name in untracked
    ]
    return Worktree(
        commit=head.decode("ascii").strip(),
        clean=not changes,
        changed=tuple(sorted(item[3:].encode("utf-8", errors="replace").decode("utf-8") for item in changes)),
        diff_sha256=sha256_bytes(b"".join(parts)),
    )


def _digest(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    return sha256_file(path) if path.is_file() else "not a file"
