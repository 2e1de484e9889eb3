"""What is installed in an environment, read from its RECORD files, and whether it still is what they say.

A dry run of an installer notices no edited file, so every file is read and hashed. Three kinds are told
apart: files that a RECORD names with a digest (the packages), files that none does but that were there when
the set-up ended (byte code, the environment's own scripts, RECORD itself: the *seal*), and anything else,
which has no business there. Byte code that no run loads (another interpreter's, or a test tool's) is passed
over.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from assay.digest import sha256_files
from assay.errors import VerificationError
from assay.setup.environments import SEAL, STAMP, Environment

# Written by the installer into a package's own directory; they hold paths or times of this machine.
LOCAL_METADATA = frozenset(
    {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}
)


@dataclass(frozen=True)
class Distribution:
    """One installed distribution: its normalised name, its version, and the digest of each of its files.

    `files` maps paths relative to the environment to SHA-256 in hex; `unhashed` are those that its RECORD
    names without a digest. `project` is the directory it is installed from, editable, or None.
    """

    name: str
    version: str
    files: Mapping[str, str]
    unhashed: tuple[str, ...]
    project: Path | None


@dataclass(frozen=True)
class Difference:
    """A file that is not what it must be, by its path relative to the environment."""

    path: str
    problem: str


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it: lower case, one hyphen for each run of separators."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def site_packages(environment: Environment) -> Path:
    """The environment's one site-packages directory.

    Raises:
        VerificationError: there is none, or more than one.
    """
    found = sorted(environment.directory.glob("lib/python3.*/site-packages"))
    if len(found) != 1:
        raise VerificationError(
            f"{environment.directory} holds {len(found)} site-packages directories, not one",
            "it is not an environment that Assay made",
            f"rm -rf {environment.directory} && eval/scripts/setup {environment.name}",
        )
    return found[0]


def distributions(environment: Environment) -> list[Distribution]:
    """Every distribution of the environment, sorted by name.

    Raises:
        VerificationError: a distribution has no RECORD, or one that cannot be read.
    """
    site = site_packages(environment)
    tag = cache_tag(environment)
    return sorted(
        (read_distribution(environment.directory, path, tag) for path in site.glob("*.dist-info")),
        key=lambda item: item.name,
    )


def read_distribution(root: Path, info: Path, tag: str) -> Distribution:
    """Read one `*.dist-info` directory; paths come out relative to `root`, the environment.

    Byte code that the environment's Python loads (`tag`) was compiled anew by the set-up, so a wheel that
    ships some says nothing of what is there.
    """
    name, _, version = info.name[: -len(".dist-info")].rpartition("-")
    base = info.parent.relative_to(root).as_posix()
    files: dict[str, str] = {}
    unhashed: list[str] = []
    try:
        with (info / "RECORD").open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                path = os.path.normpath(f"{base}/{row[0]}")
                algorithm, _, value = row[1].partition("=")
                if algorithm == "sha256" and not path.endswith(f".{tag}.pyc"):
                    files[path] = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
                else:
                    unhashed.append(path)
        project = editable_project(info)
    except (OSError, ValueError, IndexError, KeyError, binascii.Error, csv.Error) as error:
        raise VerificationError(
            f"{info / 'RECORD'} cannot be read",
            repr(error),
            "eval/scripts/setup --rebuild",
        ) from error
    return Distribution(normalised(name), version, files, tuple(unhashed), project)


def editable_project(info: Path) -> Path | None:
    """The directory an editable distribution is installed from; None for one from the index."""
    try:
        origin = json.loads((info / "direct_url.json").read_bytes())
    except FileNotFoundError:
        return None
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(str(origin["url"])).path))


def walk(root: Path) -> Iterator[tuple[str, bool]]:
    """Every file and link below the environment: its relative path, and whether it is a link."""
    pending = [root]
    prefix = len(str(root)) + 1
    while pending:
        for entry in os.scandir(pending.pop()):
            if entry.is_symlink():
                yield entry.path[prefix:], True
            elif entry.is_dir():
                pending.append(Path(entry.path))
            elif entry.path[prefix:] not in (STAMP, SEAL):
                yield entry.path[prefix:], False


def loaded_by_nobody(path: str, tag: str) -> bool:
    """Whether the file is byte code that the environment's own Python never loads by itself."""
    return path.endswith(".pyc") and "/__pycache__/" in path and not path.endswith(f".{tag}.pyc")


def fingerprints(root: Path, paths: list[str], links: list[str]) -> dict[str, str]:
    """The digest of each file and the target of each link (as `-> target`), by relative path."""
    found = {path: f"-> {(root / path).readlink()}" for path in links}
    hashed = sha256_files([root / path for path in paths])
    found.update((path, hashed[root / path]) for path in paths)
    return found


def observe(environment: Environment, expected: Mapping[str, str]) -> dict[str, str]:
    """The fingerprint of every file and link that counts, by path relative to the environment.

    Args:
        environment: The environment.
        expected: What RECORD files name; it counts, whatever it is.
    """
    tag = cache_tag(environment)
    paths: list[str] = []
    links: list[str] = []
    for path, is_link in walk(environment.directory):
        if path in expected or not loaded_by_nobody(path, tag):
            (links if is_link else paths).append(path)
    return fingerprints(environment.directory, sorted(paths), sorted(links))


def cache_tag(environment: Environment) -> str:
    """The tag of byte code that the environment's Python loads, e.g. cpython-312."""
    release = site_packages(environment).parent.name.removeprefix("python").replace(".", "")
    return f"cpython-{release}"


def recorded(found: list[Distribution]) -> dict[str, str]:
    """Every file that a RECORD names with a digest, by path relative to the environment."""
    return {path: value for item in found for path, value in item.files.items()}


def differences(
    expected: Mapping[str, str], sealed: Mapping[str, str], observed: Mapping[str, str]
) -> list[Difference]:
    """Where what is there differs from what RECORD files and the seal say, sorted by path.

    Args:
        expected: Digests from RECORD files.
        sealed: Fingerprints of the other files, as they were when the set-up ended.
        observed: Fingerprints of what is there now.
    """
    found = []
    for origin, wanted in (("its RECORD", expected), ("the set-up's seal", sealed)):
        for path, digest in wanted.items():
            now = observed.get(path)
            if now is None:
                found.append(Difference(path, f"is missing, though {origin} names it"))
            elif now != digest:
                found.append(Difference(path, f"is {now}, but {origin} says {digest}"))
    found.extend(
        Difference(path, "is named by no RECORD and was not there when the set-up ended")
        for path in observed
        if path not in expected and path not in sealed
    )
    return sorted(found, key=lambda item: item.path)
