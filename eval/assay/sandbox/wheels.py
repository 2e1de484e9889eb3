"""The wheels that a program's pins name, as a uv cache: fetched once by digest, verified on every use.

Image and host runtime install from it without a network. uv checks a wheel's digest when it fetches it, but
not what lies unpacked in its cache; so the cache's own digest is taken when it is made, and held against it
before it is used.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from assay.digest import combined_digest, sha256_file, tree_digests, value_digest
from assay.errors import VerificationError
from assay.files import read_json, write_json_atomic
from assay.paths import owned_directory, relative
from assay.sandbox.images import UvPin
from assay.sandbox.record import folder
from assay.sandbox.uv import run_uv

STAMP = "stamp.json"
LEFT_OUT = ("simple", "interpreter", "sdists", "builds")
"""Parts of uv's cache that say how the index or this machine looked, not what a wheel holds."""


def wheel_cache(pins: Path, pin: UvPin, python_version: str) -> Path:
    """A uv cache that holds exactly the wheels that pins name for one Python; the caller copies it.

    Args:
        pins: Requirement lines with hashes.
        pin: Names the platform.
        python_version: Such as "3.12"; it need not exist on this machine.

    Raises:
        PrerequisiteError: it has to be made, and the package index cannot be reached.
        VerificationError: a wheel does not have a pinned digest, or the cache was changed since it was made.
    """
    key = value_digest([sha256_file(pins), pin.version, pin.platform, python_version])[:16]
    home = owned_directory(folder() / "wheels") / key
    if (home / STAMP).is_file():
        if read_json(home / STAMP)["digest"] != digest(home / "cache"):
            raise VerificationError(
                f"{relative(home)} was changed since its wheels were fetched",
                "programs would run with other packages than the pinned ones",
                f"rm -r {relative(home)}, then run again",
            )
        return home / "cache"
    aside = home.with_name(f".{key}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    run_uv(
        *("pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
        *("--python-version", python_version, "--python-platform", pin.platform),
        *("--target", aside / "installed", "--requirement", pins, "--no-config"),
        environment={"UV_CACHE_DIR": str(aside / "cache")},
    )
    shutil.rmtree(aside / "installed")
    for name in LEFT_OUT:
        for found in (aside / "cache").glob(f"{name}-v*"):
            shutil.rmtree(found)
    (aside / "cache" / ".lock").unlink(missing_ok=True)
    write_json_atomic(aside / STAMP, {"digest": digest(aside / "cache")})
    shutil.rmtree(home, ignore_errors=True)
    aside.rename(home)
    return home / "cache"


def copy_cache(cache: Path, target: Path) -> None:
    """Copy a wheel cache, to which others may have been copied before.

    Files are hard links: uv never edits a wheel in its cache, and is told to install by copying.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(cache.rglob("*")):
        copy = target / path.relative_to(cache)
        if path.is_symlink():
            # A wheel that another program needs too is there already, under its own name in the archive.
            if not copy.is_symlink():
                copy.symlink_to(path.readlink())
        elif path.is_dir():
            copy.mkdir(exist_ok=True)
        elif not copy.exists():
            os.link(path, copy)


def digest(cache: Path) -> str:
    """One digest over the cache: every unpacked file's bytes, and what each of uv's links points to."""
    links = {
        path.relative_to(cache).as_posix(): f"link {path.readlink()}"
        for path in sorted(cache.rglob("*"))
        if path.is_symlink()
    }
    files = tree_digests(cache / next(cache.glob("archive-v*")).name)
    return combined_digest(links | files)
