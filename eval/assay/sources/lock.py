"""`prime-envs.lock`: which upstream repositories at which revisions, and the programs they must hold.

It needs nothing but the standard library, since a set-up reads it before any environment exists.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assay import pinset
from assay.errors import ConfigurationError
from assay.names import nearest
from assay.paths import ROOT, relative

NAME = "prime-envs.lock"
REVISION = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{64}")
SEGMENT = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Source:
    """An upstream repository at one revision.

    Attributes:
        name: Folder of its checkout.
        repository: Its https address.
        revision: The commit that is checked out, 40 hex digits.
        tag: A tag that must name `tag_revision`, e.g. since a version is computed from it; None for none.
        tag_revision: The commit of that tag.
    """

    name: str
    repository: str
    revision: str
    tag: str | None = None
    tag_revision: str | None = None

    @property
    def path(self) -> Path:
        """Where it is checked out."""
        return pinset.current().sources / self.name


@dataclass(frozen=True)
class ProgramDigest:
    """The digest of a program that an evaluator takes out of its sources."""

    evaluator: str
    name: str
    sha256: str


@dataclass(frozen=True)
class SourceLock:
    """The whole of `prime-envs.lock`."""

    sources: Mapping[str, Source]
    programs: tuple[ProgramDigest, ...]

    def source(self, name: str) -> Source:
        """The source of that name; ConfigurationError when the lock has none."""
        if name not in self.sources:
            raise ConfigurationError(
                f'{NAME} has no source "{name}"', nearest(name, self.sources), f"edit {NAME}"
            )
        return self.sources[name]

    def program(self, evaluator: str, name: str) -> str | None:
        """The digest of an evaluator's program; None when the lock does not name it."""
        found = (item for item in self.programs if (item.evaluator, item.name) == (evaluator, name))
        return next((item.sha256 for item in found), None)


def load_lock(lock: Path | None = None) -> SourceLock:
    """The lock of the pin set in force: a set's own entries, and production's for what it does not name.

    Args:
        lock: A run's copy of one instead.

    Raises:
        ConfigurationError: it is missing, or has a table or value that does not belong.
    """
    own = lock or pinset.current().file(NAME)
    found = read_lock(own)
    if lock is not None or own == ROOT / NAME:
        return found
    # An evaluator that the set leaves alone is still described in full.
    below = read_lock(ROOT / NAME)
    named = {(item.evaluator, item.name) for item in found.programs}
    others = tuple(item for item in below.programs if (item.evaluator, item.name) not in named)
    return SourceLock({**below.sources, **found.sources}, found.programs + others)


def read_lock(path: Path) -> SourceLock:
    """The lock in a file; ConfigurationError as `load_lock` says."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
        odd = sorted(found.keys() - {"source", "program"})
        if odd:
            raise ValueError(f"unknown table {odd[0]!r}; known: source, program")
        sources = [read_source(table) for table in found.get("source", [])]
        programs = tuple(read_program(table) for table in found.get("program", []))
        if len({item.name for item in sources}) != len(sources):
            raise ValueError("two sources have one name")
        if len({(item.evaluator, item.name) for item in programs}) != len(programs):
            raise ValueError("two programs of an evaluator have one name")
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigurationError(
            f"{relative(path)} cannot be used", reason, f"git checkout {relative(path)}"
        ) from error
    return SourceLock({item.name: item for item in sources}, programs)


def read_source(table: Mapping[str, Any]) -> Source:
    """One `[[source]]`; ValueError, TypeError or KeyError when it is not valid."""
    source = Source(
        table["name"], table["repository"], table["revision"], table.get("tag"), table.get("tag_revision")
    )
    only(table, "source", {"name", "repository", "revision", "tag", "tag_revision"})
    matched(source.name, SEGMENT, "name")
    matched(source.revision, REVISION, "revision")
    parts = urlsplit(source.repository)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.password or parts.query:
        raise ValueError(f"repository {source.repository!r} is not a plain https address")
    if (source.tag is None) != (source.tag_revision is None):
        raise ValueError(f"source {source.name!r}: tag and tag_revision belong together")
    if source.tag is not None:
        matched(source.tag, TAG, "tag")
        matched(source.tag_revision, REVISION, "tag_revision")
    return source


def read_program(table: Mapping[str, Any]) -> ProgramDigest:
    """One `[[program]]`; ValueError, TypeError or KeyError when it is not valid."""
    only(table, "program", {"evaluator", "name", "sha256"})
    matched(table["sha256"], DIGEST, "sha256")
    return ProgramDigest(str(table["evaluator"]), str(table["name"]), table["sha256"])


def only(table: Mapping[str, Any], kind: str, known: set[str]) -> None:
    """ValueError, with the nearest key, when the table has one that does not belong."""
    for key in table:
        if key not in known:
            raise ValueError(f"{kind}: unknown key {key!r}; {nearest(key, known)}")


def matched(value: object, form: re.Pattern[str], what: str) -> None:
    """ValueError unless the value is text of that form."""
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"{what} {value!r} is not of the form {form.pattern}")
