"""The chart library: which files it is, by digest, and where they lie.

Only the standard library is needed here, since the set-up reads this before any package is installed. The
files become part of every report, so they are verified each time they are read.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from assay.digest import sha256_bytes
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from assay.paths import TOOLS, relative

LOCK = Path(__file__).with_name("library.lock")
AGAIN = "eval/scripts/setup assay"


@dataclass(frozen=True)
class LibraryFile:
    """One file of it: its member of the wheel, and its digest."""

    member: str
    sha256: str

    @property
    def name(self) -> str:
        """Its own name."""
        return PurePosixPath(self.member).name


@dataclass(frozen=True)
class Library:
    """The library that the lock pins; `version` is the wheel's, `library_version` the library's own."""

    distribution: str
    version: str
    wheel: str
    wheel_sha256: str
    name: str
    library_version: str
    licence: str
    source: str
    files: tuple[LibraryFile, ...]

    @property
    def directory(self) -> Path:
        """Where its files lie once they are fetched."""
        return TOOLS / f"{self.name.lower()}-{self.library_version}"

    def path(self, file: LibraryFile) -> Path:
        """Where one file lies."""
        return self.directory / file.name

    def text(self, suffix: str) -> str:
        """The text of its one file with that suffix, its digest just checked.

        Raises:
            PrerequisiteError: it was not fetched yet.
            VerificationError: it is not the pinned one.
        """
        (file,) = (file for file in self.files if file.name.endswith(suffix))
        return read(self, file).decode("utf-8")


def pinned(lock: Path = LOCK) -> Library:
    """What the lock pins.

    Raises:
        ConfigurationError: the lock is missing or not well-formed.
    """
    try:
        table = tomllib.loads(lock.read_text("utf-8"))
        files = tuple(LibraryFile(**item) for item in table.pop("file"))
        if any(".." in file.member or file.member.startswith("/") for file in files):
            raise ValueError("a member leads out of its wheel")
        return Library(**table, files=files)
    except (OSError, ValueError, KeyError, TypeError) as error:
        again = f"git checkout {relative(lock)}"
        raise ConfigurationError(f"{relative(lock)} cannot be used", str(error), again) from error


def read(library: Library, file: LibraryFile, place: Path | None = None) -> bytes:
    """The bytes of one file.

    Args:
        library: What it belongs to.
        file: Which one.
        place: Where to look, if not where it is kept.

    Raises:
        PrerequisiteError: it is not there.
        VerificationError: it is no regular file, or its bytes are not the pinned ones.
    """
    path = place or library.path(file)
    if not os.path.lexists(path):
        what = f"{library.name} {library.library_version} is not here"
        raise PrerequisiteError(what, f"{relative(path)} does not exist", AGAIN)
    if path.is_symlink() or not path.is_file():
        raise VerificationError(f"{relative(path)} is no regular file", "", f"remove it, then {AGAIN}")
    data = path.read_bytes()
    if sha256_bytes(data) != file.sha256:
        raise VerificationError(
            f"{relative(path)} is not the pinned {library.name} {library.library_version}",
            f"it is sha256 {sha256_bytes(data)}, but {relative(LOCK)} says {file.sha256}",
            f"rm {relative(path)}; {AGAIN}",
        )
    return data
