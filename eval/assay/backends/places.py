"""Where a job's arguments say that a file or directory is: in pinned data, or on this machine.

`NAME:PATH` is a path in the data set of that name in `datasets.lock` (`NAME:` is the whole of it); anything
else is a path of this machine, relative ones to the checkout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from assay.digest import combined_digest, sha256_file, tree_digests
from assay.errors import PrerequisiteError, VerificationError
from assay.paths import ROOT

PATTERN = r"^[^\x00-\x1f]+$"


def pinned(place: str) -> str | None:
    """The name in `datasets.lock` that a place is in; None for a path of this machine."""
    name, colon, path = place.partition(":")
    parts = Path(path).parts
    if not colon or "/" in name or path.startswith("/") or ".." in parts:
        return None
    return name


def names(places: Iterable[str]) -> tuple[str, ...]:
    """The data sets that places are in, each once, in order."""
    return tuple(dict.fromkeys(name for place in places if (name := pinned(place)) is not None))


def resolve(place: str, data: Mapping[str, Path]) -> Path:
    """The absolute path of a place.

    Args:
        place: As the job says it.
        data: Verified directories by name.

    Raises:
        KeyError: the data set is not among them.
    """
    name = pinned(place)
    if name is None:
        return ROOT / place
    path = place.partition(":")[2]
    return data[name] / path if path else data[name]


def require(job: str, places: Iterable[str]) -> None:
    """Raise PrerequisiteError when a path of this machine is not there; others ask for pinned data."""
    for place in places:
        if pinned(place) is None and not (ROOT / place).exists():
            raise PrerequisiteError(
                f"job {job} reads {place}, which is not there",
                f"it is looked for at {ROOT / place}",
                "put it there, or mend the path in the suite",
            )


def digests(places: Iterable[str]) -> dict[str, str]:
    """SHA-256 of what lies at each path of this machine, by `local:<place>`.

    Raises:
        VerificationError: one cannot be read.
    """
    found = {}
    for place in places:
        if pinned(place) is not None:
            continue
        path = ROOT / place
        try:
            whole = combined_digest(tree_digests(path)) if path.is_dir() else sha256_file(path)
        except OSError as error:
            raise VerificationError(
                f"{path} cannot be hashed", f"{error.strerror}", f"ls -l {path}"
            ) from error
        found[f"local:{place}"] = whole
    return found
