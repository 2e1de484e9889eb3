"""`manifest.json`: the digest of every file of a run but itself, the lock, the statement and the report.

It is written last, so a run without one was not finished. Whoever holds its digest holds the whole run. The
lock says who holds a suite's directory at the moment, which is no part of what the run found.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.digest import sha256_files
from assay.errors import VerificationError
from assay.files import read_json, sync_directory, write_json_atomic

NAME = "manifest.json"
SCHEMA = "assay/manifest/v1"
STATEMENT = "statement.dsse.json"
OUTSIDE = frozenset({NAME, "lock", STATEMENT, "report.html"})


@dataclass(frozen=True)
class Difference:
    """One file that is not as the manifest says."""

    path: str
    what: str


def run_digests(run: Path) -> dict[str, str]:
    """What stands in the run directory now, by relative path: `sha256:<hex>` of a file, `link:<target>`.

    Raises:
        VerificationError: see `run_files`.
    """
    links, files = run_files(run)
    found = dict(links)
    for path, digest in sha256_files(files).items():
        found[path.relative_to(run).as_posix()] = f"sha256:{digest}"
    return {name: found[name] for name in sorted(found) if name not in OUTSIDE}


def run_files(run: Path) -> tuple[dict[str, str], list[Path]]:
    """The run directory's links, as `link:<target>` by relative path, and its files; no file is opened.

    Evaluators leave links of their own (`logs/latest`); one is recorded by its target, and only where that is
    a plain name in the same folder, so that no link can bring outside bytes into a record.

    Raises:
        VerificationError: the run directory holds another link, a special file (reading a pipe would never
            end), or a name that is not UTF-8.
    """
    links: dict[str, str] = {}
    files: list[Path] = []
    for folder, folders, names in os.walk(run, followlinks=False):
        for name in sorted([*folders, *names]):
            path = Path(folder) / name
            relative = path.relative_to(run).as_posix()
            mode = path.lstat().st_mode
            if not _is_text(relative):
                raise VerificationError(
                    f"{relative!r} is not a UTF-8 name", "a record names its files in one way only"
                )
            if stat.S_ISLNK(mode):
                target = str(path.readlink())
                if target in {"", ".", ".."} or "/" in target or not _is_text(target):
                    raise VerificationError(
                        f"{relative} is a link to {target}", "a record holds its own bytes only"
                    )
                links[relative] = f"link:{target}"
            elif stat.S_ISREG(mode):
                files.append(path)
            elif not stat.S_ISDIR(mode):
                raise VerificationError(
                    f"{relative} is neither a file nor a directory", "a record holds only bytes"
                )
    return links, files


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def write_manifest(run: Path) -> None:
    """Write the manifest over everything that stands here now; a statement of an older one is withdrawn."""
    withdraw_statement(run)
    write_json_atomic(run / NAME, {"schema_version": SCHEMA, "files": run_digests(run)})


def withdraw_statement(run: Path) -> None:
    """Remove the statement of an earlier manifest, for good, before anything of the run is changed."""
    try:
        (run / STATEMENT).unlink()
    except FileNotFoundError:
        return
    sync_directory(run)


def load_manifest(run: Path) -> dict[str, str]:
    """The recorded digests by path.

    Raises:
        VerificationError: there is no manifest, or it is not one.
    """
    path = run / NAME
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise VerificationError(
            f"{run} has no {NAME}", "it is written last, so this run did not finish", f"assay status {run}"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise VerificationError(f"{path} is not a regular file", "", "restore the run from where you got it")
    try:
        value: Any = read_json(path)
        if value["schema_version"] != SCHEMA:
            raise ValueError(f"schema_version is {value['schema_version']!r}, expected {SCHEMA!r}")
        recorded = {str(name): str(item) for name, item in value["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise VerificationError(
            f"{path} is not a manifest", str(error), "restore it from where you got it"
        ) from error
    return recorded


def compare(run: Path) -> list[Difference]:
    """Hold the run directory against its manifest; an empty list means every file is as recorded.

    Raises:
        VerificationError: there is no usable manifest.
    """
    recorded = load_manifest(run)
    differences = []
    try:
        actual = run_digests(run)
    except VerificationError as error:
        return [Difference(str(run), error.what)]
    for name in sorted(recorded.keys() | actual.keys()):
        if name not in actual:
            differences.append(Difference(name, "recorded, but missing"))
        elif name not in recorded:
            differences.append(Difference(name, "not recorded: it was added"))
        elif actual[name] != recorded[name]:
            differences.append(Difference(name, f"is {actual[name]}, recorded {recorded[name]}"))
    return differences
