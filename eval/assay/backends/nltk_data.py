"""NLTK's data as they are published (an archive a part), or unpacked as its own download leaves them.

NLTK reads some parts out of their archives and looks for others as folders; so what is packed is unpacked for
the child, into a folder that goes with the job.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from assay.errors import VerificationError

MAXIMUM_BYTES = 1 << 30


def lacking(folder: Path, parts: Sequence[str]) -> list[str]:
    """Which of the parts (`tokenizers/punkt_tab`) are in a folder neither unpacked nor as an archive."""
    return [part for part in parts if not ((folder / part).is_dir() or archive(folder, part).is_file())]


def archive(folder: Path, part: str) -> Path:
    """Where a part's archive would be."""
    return folder / f"{part}.zip"


def unpacked(folder: Path, parts: Sequence[str], into: Path) -> Path:
    """A folder in which every part is a folder: the given one, or another with the parts unpacked or linked.

    Args:
        folder: Where the parts are.
        parts: Their names.
        into: Where to unpack them; it is private, and goes with the job.

    Raises:
        VerificationError: an archive cannot be read, or would grow beyond `MAXIMUM_BYTES`.
    """
    if all((folder / part).is_dir() for part in parts):
        return folder
    for part in parts:
        place = (into / part).parent
        place.mkdir(parents=True, exist_ok=True)
        if (folder / part).is_dir():
            (into / part).unlink(missing_ok=True)
            (into / part).symlink_to((folder / part).resolve())
            continue
        path = archive(folder, part)
        try:
            with zipfile.ZipFile(path) as packed:
                if sum(member.file_size for member in packed.infolist()) > MAXIMUM_BYTES:
                    raise VerificationError(f"{path} would grow beyond {MAXIMUM_BYTES} bytes")
                packed.extractall(place)
        except (OSError, zipfile.BadZipFile) as error:
            raise VerificationError(f"{path} cannot be unpacked", str(error)) from error
    return into
