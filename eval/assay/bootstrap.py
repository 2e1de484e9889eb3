"""Find a Python that can carry Assay, and start the set-up with it.

`python bootstrap.py VERB ARGUMENTS…` is what every command of eval/scripts runs. This file, and what it
imports at its top, runs on any Python from 3.7 on, since the first Python found on a machine need not be
one that Assay supports. A candidate counts only if it was really executed and said what it is: a version
manager's shim can stand on PATH for a Python that is not there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assay.errors import AssayError, PrerequisiteError

LOWEST = (3, 11)
HIGHEST = (3, 13)
ANY = ">=3.11,<3.14"
NAMES = ("python3.13", "python3.12", "python3.11", "python3")
PROBE_TIMEOUT_S = 30

# Runs in the candidate, in isolated mode; prints one JSON object as its last line.
PROBE = """
import importlib.util, json, os, sys, sysconfig
include = sysconfig.get_paths()["include"]
shared = sysconfig.get_config_var("Py_ENABLE_SHARED") and sysconfig.get_config_var("INSTSONAME")
library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", shared) if shared else None
has = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({
    "path": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "version": list(sys.version_info[:3]),
    "implementation": sys.implementation.name,
    "cc": (sysconfig.get_config_var("CC") or "").split(" ")[0],
    "include": include,
    "headers": os.path.isfile(os.path.join(include, "Python.h")),
    "library": library,
    "pip": has("pip"),
    "ensurepip": has("ensurepip") and has("venv"),
    "complete": all(has(name) for name in ("ssl", "ctypes", "sqlite3", "zlib", "bz2", "lzma")),
    "wide": sys.maxsize > 2**32,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that was executed, and what it said about itself."""

    path: str
    version: tuple[int, int, int]
    implementation: str
    cc: str
    include: str
    headers: bool
    library: str | None
    pip: bool
    ensurepip: bool
    complete: bool
    wide: bool
    free_threaded: bool

    @property
    def release(self) -> str:
        """The version as text, e.g. 3.12.1."""
        return ".".join(str(part) for part in self.version)


@dataclass(frozen=True)
class Candidate:
    """A command that might be a Python, where it was found, and what came of starting it.

    `interpreter` is None when it did not start; `reason` is empty when it fits.
    """

    command: str
    origin: str
    interpreter: Interpreter | None
    reason: str


def version_range(lowest: tuple[int, int], highest: tuple[int, int]) -> str:
    """The accepted versions as a person reads them, e.g. "3.11 to 3.13"."""
    low, high = (".".join(str(part) for part in bound) for bound in (lowest, highest))
    return low if low == high else f"{low} to {high}"


def probe(command: str, origin: str, lowest: tuple[int, int], highest: tuple[int, int]) -> Candidate:
    """Start the command and judge it; never raises for a candidate that does not work."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        child = subprocess.run(
            [command, "-I", "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Candidate(command, origin, None, f"does not start: {error}")
    if child.returncode != 0:
        lines = child.stderr.decode("utf-8", "replace").strip().splitlines()
        return Candidate(command, origin, None, f"does not start: {lines[0] if lines else child.returncode}")
    try:
        said = json.loads(child.stdout.decode("utf-8").strip().splitlines()[-1])
        interpreter = Interpreter(**dict(said, version=tuple(said["version"])))
    except (ValueError, IndexError, TypeError, KeyError):
        return Candidate(command, origin, None, "is not Python: it did not answer what it is")
    return Candidate(command, origin, interpreter, unfit(interpreter, lowest, highest))


def unfit(interpreter: Interpreter, lowest: tuple[int, int], highest: tuple[int, int]) -> str:
    """Why the interpreter cannot be used, with what to install; empty when it can."""
    short = interpreter.version[:2]
    if not lowest <= short <= highest:
        return f"is {interpreter.release}, not {version_range(lowest, highest)}"
    if interpreter.implementation != "cpython":
        return f"is {interpreter.implementation}, not CPython"
    if interpreter.free_threaded:
        return "is a free-threaded build, for which the locked packages have no wheels"
    if not interpreter.wide:
        return "is a 32-bit build"
    if not interpreter.complete:
        return "was built without ssl, ctypes, sqlite3, zlib, bz2 or lzma"
    if not interpreter.headers:
        package = "python{}.{}-dev".format(*short)
        return f"lacks its headers ({interpreter.include}/Python.h): Debian has them in {package}"
    return ""


def candidates(
    explicit: str | None, known: Sequence[str], preferred: str | None = None, wanted: str = ANY
) -> Iterator[tuple[str, str]]:
    """Commands to try, in order, each with where it was found.

    Args:
        explicit: What must be used; then nothing else is tried.
        known: Interpreters that existing environments were made with, best first.
        preferred: What is tried before them.
        wanted: The accepted versions, as uv is asked for them.
    """
    if explicit is not None:
        yield explicit, "as asked for"
        return
    if preferred is not None:
        yield preferred, "ASSAY_PYTHON"
    for used in known:
        yield used, "used by an existing environment"
    for name in NAMES:
        for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
            program = Path(directory or ".", name)
            if os.access(program, os.X_OK):
                yield str(program), "PATH"
    versions = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    if versions.is_dir():
        for version in sorted(versions.iterdir(), reverse=True):
            yield str(version / "bin" / "python3"), "pyenv"
    uv = shutil.which("uv")
    if uv is not None:
        for found in found_by_uv(uv, wanted):
            yield found, "uv python find"


def found_by_uv(uv: str, wanted: str) -> list[str]:
    """Interpreters that uv knows of and that are already on this machine; empty when it finds none."""
    command = [uv, "python", "find", "--no-project", "--no-python-downloads", wanted]
    try:
        child = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return child.stdout.decode("utf-8", "replace").split("\n")[:1] if child.returncode == 0 else []


def find(
    explicit: str | None = None,
    known: Sequence[str] = (),
    lowest: tuple[int, int] = LOWEST,
    highest: tuple[int, int] = HIGHEST,
) -> Interpreter:
    """The first Python that fits; candidates that lead to the same program are started once.

    Args:
        explicit: A path or a name on PATH that must be used; ASSAY_PYTHON when None. Where fewer versions
            fit than Assay itself accepts, ASSAY_PYTHON is tried first, but need not fit.
        known: Interpreters to try before those found on the machine.
        lowest: The lowest accepted (major, minor).
        highest: The highest accepted (major, minor).

    Raises:
        PrerequisiteError: none fits; the error lists each candidate with why it does not.
    """
    variable = os.environ.get("ASSAY_PYTHON") or None
    narrow = (lowest, highest) != (LOWEST, HIGHEST)
    wanted = explicit or (None if narrow else variable)
    versions = ">={}.{},<{}.{}".format(*lowest, highest[0], highest[1] + 1)
    tried: list[Candidate] = []
    seen: set[str] = set()
    for command, origin in candidates(wanted, known, variable, versions):
        resolved = os.path.realpath(shutil.which(command) or command)
        if resolved in seen:
            continue
        # A shim's file is the same for every name, so only a program that is no script is told by its path.
        if not is_script(resolved):
            seen.add(resolved)
        candidate = probe(command, origin, lowest, highest)
        if candidate.interpreter is not None and not candidate.reason:
            return candidate.interpreter
        tried.append(candidate)
    wording = version_range(lowest, highest)
    listing = "".join(f"\n        {item.command} ({item.origin}) {item.reason}" for item in tried)
    raise PrerequisiteError(
        f"no usable Python {wording} was found" if wanted is None else f"{wanted} cannot be used",
        (f"tried:{listing}" if tried else "there is none on PATH, in pyenv's versions, or known to uv"),
        remedy(wording if narrow else ""),
    )


def remedy(version: str) -> str:
    """What to do when there is no Python: of any version that Assay accepts, or of exactly the one named."""
    if not version:
        return (
            "install one with its headers (Debian: apt-get install python3-dev python3-venv), "
            "or name one with --python or ASSAY_PYTHON"
        )
    return (
        f"install Python {version} with its headers (nix develop has it; else: pyenv install {version}, or: "
        f"uv python install {version}), or name one: eval/scripts/setup NAME --python P"
    )


def is_script(path: str) -> bool:
    """Whether the file begins like a script."""
    try:
        with Path(path).open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def main(words: Sequence[str]) -> int:
    """Start the verb with a Python that Assay supports, which may be the running one.

    Returns:
        The exit code, when the verb was run here or no Python was found; else another program takes over.
    """
    if LOWEST <= tuple(sys.version_info[:2]) <= HIGHEST:
        from assay import cli

        return cli.guard(words, lambda: begin(words))
    from assay.console import complain

    try:
        interpreter = find()
    except AssayError as error:
        complain(error)
        return error.exit_code
    return os.execv(interpreter.path, [interpreter.path, "-I", "-S", str(Path(__file__).resolve()), *words])


def begin(words: Sequence[str]) -> int:
    """Put the pin set in force, then start the verb; what that imports depends on the set."""
    from assay import pinset

    left = pinset.choose(words)
    from assay.setup.start import start

    return start(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
