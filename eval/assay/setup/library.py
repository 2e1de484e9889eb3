"""Fetch the report's chart library: by digest, out of a wheel, or not at all."""

from __future__ import annotations

import os

from assay.paths import TOOLS, owned_directory, relative
from assay.report.library import AGAIN, LOCK, Library, pinned, read
from assay.setup import tool
from assay.setup.environments import ENVIRONMENTS
from assay.setup.turn import turn
from assay.setup.wheel import Wheel, keep, member, unpacked


def verify() -> Library:
    """The library, every file of it just checked; see `assay.report.library.read` for what is raised."""
    library = pinned()
    for file in library.files:
        read(library, file)
    return library


def fetch() -> Library:
    """The library, downloaded if it is not here yet; a file that is here and wrong is never replaced.

    Raises:
        PrerequisiteError: the package index cannot be reached, or environment `assay` is missing.
        VerificationError: a file here is wrong, or what was downloaded is not what is pinned.
        RunError: the disk became full.
    """
    library = pinned()
    if missing(library):
        with turn() as handle:
            # Another set-up may have done it while this one waited.
            if missing(library):
                download(library, tool.Runner(handle))
    return verify()


def missing(library: Library) -> bool:
    """Whether a file of it is not here."""
    return not all(os.path.lexists(library.path(file)) for file in library.files)


def download(library: Library, runner: tool.Runner) -> None:
    """Take what is missing out of the wheel."""
    wheel = Wheel(library.distribution, library.version, library.wheel, library.wheel_sha256)
    owned_directory(library.directory)
    aside = TOOLS / f".{library.directory.name}.fetch"
    doing = f"{library.name} {library.library_version} out of its wheel, by digest"
    with unpacked(wheel, aside, ENVIRONMENTS["assay"].python, runner, doing, AGAIN) as folder:
        for file in library.files:
            found = member(folder, wheel, file.member, relative(LOCK))
            read(library, file, found)
            if not os.path.lexists(library.path(file)):
                keep(found, library.path(file))
