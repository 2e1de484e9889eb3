"""From a published file back to a directory, believing nothing: names, sizes and digests are as it lists."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from assay.digest import sha256_file
from assay.errors import ConfigurationError, VerificationError
from assay.export.contents import CRATE, NAME, Contents, load
from assay.files import disk_full

MOST_FILES = 20_000
MOST_BYTES = 1 << 30
# Beyond this a file of the archive is a bomb: what we write compresses some ten times.
MOST_RATIO = 1000
CHUNK_BYTES = 1 << 20
SHOWN = 40
OWN = frozenset({NAME, CRATE})


def unpack(file: Path, into: Path) -> Path:
    """Write the run that a file publishes into a directory, under its own name, and return where it is.

    Raises:
        ConfigurationError: there is no such file, or the directory holds one of that name already.
        RunError: the disk is full.
        VerificationError: the file is no export, or holds something else than it lists.
    """
    if not file.is_file():
        raise ConfigurationError(f"{file} is not a file", "", "name what assay export wrote")
    try:
        into.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigurationError(
            f"{into} is not a directory", "", "name another place: --into DIR"
        ) from error
    with tempfile.TemporaryDirectory(dir=into, prefix=".import-") as name:
        folder = Path(name) / "run"
        folder.mkdir()
        try:
            with ZipFile(file) as archive:
                _extract(archive, folder)
        except OSError as error:
            raise disk_full(into / file.name, error) from error
        except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise _refused(file, str(error)) from error
        if not (folder / NAME).is_file():
            raise _refused(file, f"it holds no {NAME}")
        contents = load(folder)
        _hold(file, folder, contents)
        target = into / contents.run
        if os.path.lexists(target):
            raise ConfigurationError(
                f"{target} is already there",
                "nothing is written over",
                "name another place: --into DIR, or remove it",
            )
        folder.rename(target)
    return target


def _extract(archive: ZipFile, folder: Path) -> None:
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise BadZipFile(f"it holds {len(entries)} files, and at most {MOST_FILES} are read")
    total = 0
    seen: set[str] = set()
    for entry in entries:
        _admit(entry, seen)
        total += entry.file_size
        if total > MOST_BYTES or entry.file_size > MOST_RATIO * max(entry.compress_size, 1):
            raise BadZipFile(f"{entry.filename!r} is larger than an export's files are")
        target = folder / entry.filename
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("xb") as sink:
                # Bounded by what the entry says of itself, which was bounded above.
                shutil.copyfileobj(source, sink, CHUNK_BYTES)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise BadZipFile(f"{entry.filename!r} is a file and a directory") from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise BadZipFile(f"{entry.filename[:SHOWN]!r}... is too long a name") from error


def _admit(entry: ZipInfo, seen: set[str]) -> None:
    """Refuse an entry that is no plain file below the directory."""
    name = entry.filename
    path = PurePosixPath(name)
    plain = not path.is_absolute() and path.parts and ".." not in path.parts and path.as_posix() == name
    if not plain or "\\" in name or any(ord(letter) < 32 for letter in name):
        raise BadZipFile(f"{name!r} is no name of a file below the export")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise BadZipFile(f"{name!r} is no regular file")
    if entry.flag_bits & 1 or entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise BadZipFile(f"{name!r} is encrypted, or packed in another way than exports are")
    if name in seen:
        raise BadZipFile(f"{name!r} is there twice")
    seen.add(name)


def _hold(file: Path, folder: Path, contents: Contents) -> None:
    """Refuse files that are missing, not listed, or not as they are listed."""
    listed = contents.digests
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    faults = [f"{path} is missing" for path in sorted(listed.keys() - there)]
    faults += [f"{path} is not listed" for path in sorted(there - listed.keys() - OWN)]
    for path in sorted(listed.keys() & there):
        if (found := sha256_file(folder / path)) != listed[path]:
            faults.append(f"{path} is {found}, listed {listed[path]}")
    if faults:
        raise _refused(file, "; ".join(faults[:5]))


def _refused(file: Path, why: str) -> VerificationError:
    return VerificationError(f"{file} is not an export that can be read", why, "fetch it again")
