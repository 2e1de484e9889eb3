"""The programs of a machine: where each lies, what version it says it is, and what its bytes are.

A name on PATH is a claim. What is recorded is the file behind it, links resolved, since a shell can put a
link to anything there; only a file in the Nix store is one that nobody changes in place.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.digest import sha256_file, value_digest

STORE = Path("/nix/store")
STORE_NAME = re.compile(r"[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+._?=-]+")
VERSION = re.compile(r"\d+(?:\.\d+)+")
ANSWER_WITHIN_S = 30
COMPILERS = ("c++", "g++", "clang++")
CUDA_HOME = "/usr/local/cuda"
# A Python's release, and its shared library where it has one.
PYTHON_PROBE = """
import json, os, sys, sysconfig
name = sysconfig.get_config_var("Py_ENABLE_SHARED") and sysconfig.get_config_var("INSTSONAME")
library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", name) if name else None
print(json.dumps([".".join(map(str, sys.version_info[:3])), library]))
"""


@dataclass(frozen=True)
class Program:
    """A program that is there.

    Attributes:
        name: What it was looked for as, e.g. "c++".
        found: Its path as PATH has it.
        path: The file itself, links resolved.
        version: The number it says; None when it does not start or says none.
        sha256: Digest of the file.
        store_path: The store's directory it lies in; None outside the Nix store.
    """

    name: str
    found: str
    path: str
    version: str | None
    sha256: str
    store_path: str | None

    def describe(self) -> dict[str, str | None]:
        """Its attributes as JSON values, without the name, for a record."""
        value = asdict(self)
        del value["name"]
        return value


def program(name: str, command: str | Path | None = None, store: Path = STORE) -> Program | None:
    """Look a program up; None when it is not there or cannot be read.

    Args:
        name: What it is called in a record.
        command: Its path, or its name on PATH where that is another.
        store: Where the Nix store is.
    """
    found = shutil.which(os.fspath(command or name))
    if found is None:
        return None
    path = Path(found).resolve()
    try:
        digest = sha256_file(path)
    except OSError:
        return None
    return Program(name, found, str(path), version(found), digest, store_path(path, store))


def first_program(name: str, commands: Iterable[str | Path]) -> Program | None:
    """The first of the commands that is there, under one name."""
    return next((found for command in commands if (found := program(name, command))), None)


def version(command: str) -> str | None:
    """The version number that the program says with `--version`; None when it says none."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        child = subprocess.run(
            [command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_WITHIN_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if child.returncode != 0:
        return None
    for line in child.stdout.decode("utf-8", "replace").splitlines():
        # A distribution's own number, in brackets, stands before the program's.
        numbers = VERSION.findall(line)
        if numbers:
            return str(numbers[-1])
    return None


def store_path(path: Path, store: Path = STORE) -> str | None:
    """The directory of the Nix store that a resolved path lies in; None when it lies in none.

    Args:
        path: Links resolved.
        store: Where the Nix store is.
    """
    try:
        name = path.relative_to(store).parts[0]
    except (ValueError, IndexError):
        return None
    return str(store / name) if STORE_NAME.fullmatch(name) else None


def programs(uv: Path | None) -> dict[str, Program | None]:
    """The programs a run may use, beside Python; None for one that is not there.

    Args:
        uv: The pinned uv that set-ups call; None when there is none yet.
    """
    nvcc = os.environ.get("NVCC")
    homes = [home for home in (os.environ.get("CUDA_HOME"), CUDA_HOME) if home]
    return {
        "uv": program("uv", uv) if uv else None,
        "git": program("git"),
        "docker": program("docker"),
        "jq": program("jq"),
        "c++": first_program("c++", COMPILERS),
        # Where the server looks for it.
        "nvcc": first_program("nvcc", [nvcc] if nvcc else ["nvcc", *(f"{home}/bin/nvcc" for home in homes)]),
        "nix": program("nix"),
    }


def python_digest(python: Path) -> tuple[str, str]:
    """A Python's release, and one digest over its program and its shared library, if it has one.

    Args:
        python: The program, links resolved.

    Raises:
        OSError, ValueError, subprocess.CalledProcessError: it does not start, or is no Python.
    """
    child = subprocess.run(
        [python, "-I", "-S", "-c", PYTHON_PROBE], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    release, library = json.loads(child.stdout)
    digests = [sha256_file(python)]
    if library is not None and Path(library).is_file():
        digests.append(sha256_file(Path(library)))
    return str(release), value_digest(digests)
