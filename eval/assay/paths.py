"""Where things live in a checkout, and the one rule about them: Assay writes nowhere else.

`ROOT` is found from this file, since the package is installed editable from the checkout it belongs to.
A directory that Assay owns must be a real directory: a symbolic link in its place is refused, because
following it would write outside the checkout.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path

from assay.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
EVAL = ROOT / "eval"
CONFIGS = EVAL / "configs"
EVALUATORS = EVAL / "evaluators"
TASKSETS = EVAL / "tasksets"
RUNS = EVAL / "runs"
RUNTIME = ROOT / "runtime"
OWNED = ROOT / ".assay"
CACHE = OWNED / "cache"
MODELS = OWNED / "models"
TOOLS = OWNED / "tools"
# How every key in PEM begins.
PEM = b"-----BEGIN "


def relative(path: Path) -> str:
    """The path as seen from the checkout's root, with forward slashes; absolute when it lies outside."""
    try:
        return path.relative_to(ROOT).as_posix()
    except ValueError:
        return path.as_posix()


def output_file(path: Path, runs: Iterable[Path], inside: str | None = None) -> Path:
    """Where a command writes what it was told to, before it begins: outside of runs, over no other thing.

    Args:
        path: The file, which is replaced whole.
        runs: Directories that nothing is written into.
        inside: The one name in them that their manifests leave out; None for none.

    Raises:
        ConfigurationError: it lies in one of them, its directory is none, or what is there is no regular
            file (a link or a device would be replaced, not written to) or a key.
    """
    whole = Path(os.path.realpath(path.parent)) / path.name
    for run in (Path(os.path.realpath(run)) for run in runs):
        if whole.is_relative_to(run) and (inside is None or whole != run / inside):
            raise ConfigurationError(
                f"{path} lies inside the run {run}",
                "a run is never changed, and an audit finds every file that was not recorded",
                "name a file elsewhere" + (f", or {inside}" if inside else ""),
            )
    if not whole.parent.is_dir():
        raise ConfigurationError(f"{whole.parent} is not a directory", "", f"mkdir -p {whole.parent}")
    if os.path.lexists(whole):
        if not stat.S_ISREG(whole.lstat().st_mode):
            raise ConfigurationError(
                f"{path} is not a regular file", "it would be replaced by one", "name another file"
            )
        with whole.open("rb") as file:
            if file.read(len(PEM)) == PEM:
                raise ConfigurationError(
                    f"{path} holds a key", "a key is never overwritten", "name another file"
                )
    return whole


def owned_directory(path: Path, mode: int = 0o755) -> Path:
    """Create the directory inside the checkout, if need be, and return it.

    Args:
        path: A directory at or below `ROOT`.
        mode: Permission bits for directories that are created.

    Raises:
        ConfigurationError: a component below `ROOT` is a symbolic link or not a directory, or the path
            lies outside the checkout.
    """
    try:
        parts = path.relative_to(ROOT).parts
        if ".." in parts:
            raise ValueError(path)
    except ValueError:
        raise ConfigurationError(
            f"{path} is not inside the checkout {ROOT}", "Assay writes nowhere else", "choose a path below it"
        ) from None
    current = ROOT
    for part in parts:
        current = current / part
        try:
            found = current.lstat()
        except FileNotFoundError:
            current.mkdir(mode=mode, exist_ok=True)
            continue
        if stat.S_ISLNK(found.st_mode):
            raise ConfigurationError(
                f"{relative(current)} is a symbolic link where a directory belongs",
                f"it points to {current.readlink()}, and Assay writes only inside the checkout",
                f"remove the link: rm {relative(current)}",
            )
        if not stat.S_ISDIR(found.st_mode):
            raise ConfigurationError(
                f"{relative(current)} is a file where a directory belongs",
                "",
                f"move it away: mv {relative(current)} {relative(current)}.saved",
            )
    return path


def owned_lock(path: Path) -> int:
    """Open a lock file in an owned directory, made if need be, and return its handle.

    Args:
        path: The file; its directory is there.

    Raises:
        ConfigurationError: a link, or something else that is no file, stands in its place, or it cannot be
            written.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError(
            f"{relative(path)} cannot be locked, so nothing beside it is changed",
            f"{error.strerror}",
            remedy(path),
        ) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ConfigurationError(f"{relative(path)} is no lock file", "it is no regular file", remedy(path))
    return handle


def remedy(path: Path) -> str:
    """What to type where a lock file cannot be had: move away what stands there, or look at the directory."""
    place = shlex.quote(relative(path))
    if os.path.lexists(path) and not (path.is_file() and not path.is_symlink()):
        return f"move it away: mv {place} {shlex.quote(relative(path) + '.saved')}"
    return f"make it writable for you (see: ls -ld {shlex.quote(str(path.parent))})"
