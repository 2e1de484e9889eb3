"""Where a source is fetched from: its own repository, or a site's mirror of it, told by path or by name.

A mirror is plain Git: a directory of bare repositories, or a base address under which they are served. What
it gives is held against the same pins, so it need not be trusted.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from assay.errors import ConfigurationError
from assay.sources.git import TRANSPORTS
from assay.sources.lock import Source

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
USAGE = "eval/scripts/setup --sources-only --mirror DIR|URL"


@dataclass(frozen=True)
class Origin:
    """One place that may have a source: its address for Git, and its directory when it is one."""

    address: str
    directory: Path | None = None


@dataclass(frozen=True)
class Mirror:
    """A site's mirror: a directory, or a base address."""

    place: str
    directory: Path | None

    def origins(self, source: Source) -> list[Origin]:
        """Where it may have the source, the most telling name first."""
        names = candidates(source.repository)
        if self.directory is None:
            return [Origin(f"{self.place.rstrip('/')}/{name}") for name in names]
        there = [self.directory / name for name in names if is_repository(self.directory / name)]
        return [Origin(str(path), path) for path in there]


def read_mirror(place: str | None) -> Mirror | None:
    """The mirror that an option names; None for none.

    Raises:
        ConfigurationError: it is no directory, an address of another kind, or one with a password in it.
    """
    if place is None:
        return None
    if not ADDRESS.match(place):
        directory = Path(place).absolute()
        if not directory.is_dir():
            raise ConfigurationError(f"the mirror {place} is no directory", "nor an address", USAGE)
        return Mirror(place, directory)
    parts = urlsplit(place)
    if parts.scheme not in TRANSPORTS:
        known = ", ".join(f"{name}://" for name in TRANSPORTS)
        raise ConfigurationError(f"a mirror is not reached by {parts.scheme}://", f"known: {known}", USAGE)
    if parts.username or parts.password:
        # Its parts are not repeated: one of them is a secret.
        raise ConfigurationError(
            "the mirror's address holds a user or a password",
            "a secret in an argument can be read by every user of the machine",
            f"give the address alone: {USAGE}",
        )
    return Mirror(place, None)


def candidates(repository: str) -> list[str]:
    """Names under which a mirror may hold a repository: host and path, path, name; each with .git or not."""
    parts = urlsplit(repository)
    path = parts.path.strip("/").removesuffix(".git")
    stems = dict.fromkeys((path, path.rpartition("/")[2], f"{parts.hostname}/{path}"))
    return [f"{stem}{ending}" for stem in stems for ending in (".git", "")]


def is_repository(path: Path) -> bool:
    """Whether there is something that Git can fetch from: bare, or with a working tree."""
    return any((path / inner / "objects").is_dir() for inner in (os.curdir, ".git"))
