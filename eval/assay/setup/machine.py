"""What a set-up needs of the machine, really tried: a working compiler, Git, room on the disk.

Headers and the Python itself are judged where it is found (`assay.bootstrap`); here they are compiled
against, so that a broken installation is met in a second and not in the middle of a source package.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assay.bootstrap import Interpreter
from assay.errors import PrerequisiteError
from assay.paths import CACHE, ROOT, owned_directory

C_SOURCE = "#include <Python.h>\nint assay_probe(void) { return PY_MAJOR_VERSION; }\n"
CXX_SOURCE = "#include <cmath>\nint assay_probe(double x) { return int(std::sqrt(x)); }\n"
GIB = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: what came of it, and what to install when it is not usable."""

    name: str
    usable: bool
    detail: str
    remedy: str = ""


def compilers(variable: str, names: tuple[str, ...]) -> list[list[str]]:
    """Commands that may be a compiler: the environment variable's alone, or those of the names on PATH."""
    if os.environ.get(variable):
        return [shlex.split(os.environ[variable])]
    return [[name] for name in names if shutil.which(name)]


def compiles(command: list[str], source: str, suffix: str, flags: list[str]) -> str:
    """Compile the source into a shared library; the first line of what is wrong, empty when it works."""
    with tempfile.TemporaryDirectory(dir=owned_directory(CACHE / "tmp")) as name:
        written = Path(name) / f"probe{suffix}"
        written.write_text(source, "utf-8")
        try:
            child = subprocess.run(
                [*command, "-shared", "-fPIC", *flags, str(written), "-o", f"{name}/probe.so"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
                check=False,
                env=dict(os.environ, TMPDIR=name),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    lines = child.stderr.decode("utf-8", "replace").strip().splitlines()
    if child.returncode == 0:
        return ""
    telling = [line for line in lines if "error" in line] or lines
    return telling[0] if telling else f"exit status {child.returncode}"


def find_compiler(
    what: str, variable: str, names: tuple[str, ...], source: str, suffix: str, flags: list[str], remedy: str
) -> Finding:
    """The first command that compiles the source; its detail is the command, to be used as it stands."""
    tried = []
    for command in compilers(variable, names):
        problem = compiles(command, source, suffix, flags)
        if not problem:
            return Finding(what, True, shlex.join(command))
        tried.append(f"{shlex.join(command)}: {problem}")
    detail = "; ".join(tried) or f"none of {', '.join(names)} is on PATH"
    return Finding(what, False, detail, remedy)


def c_compiler(interpreter: Interpreter) -> Finding:
    """A C compiler that compiles against the interpreter's headers (source-only packages need it)."""
    remedy = "a C compiler and Python's headers (Debian: apt-get install gcc python3-dev)"
    flags = [f"-I{interpreter.include}"]
    names = tuple(name for name in dict.fromkeys((interpreter.cc, "cc", "gcc", "clang")) if name)
    return find_compiler("C compiler", "CC", names, C_SOURCE, ".c", flags, remedy)


def cxx_compiler() -> Finding:
    """A C++17 compiler (the server's engine needs it)."""
    remedy = "a C++17 compiler (Debian: apt-get install g++)"
    flags = ["-std=c++17", "-pthread"]
    return find_compiler("C++ compiler", "CXX", ("c++", "g++", "clang++"), CXX_SOURCE, ".cc", flags, remedy)


def git() -> Finding:
    """Git, started once."""
    remedy = "Git (Debian: apt-get install git)"
    try:
        child = subprocess.run(
            ["git", "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Git", False, str(error), remedy)
    said = child.stdout.decode("utf-8", "replace").strip()
    return Finding("Git", child.returncode == 0, said or f"exit status {child.returncode}", remedy)


def disk(need_bytes: int) -> Finding:
    """Free space on the checkout's file system against what is needed, in GiB."""
    free = shutil.disk_usage(ROOT).free
    detail = f"{free / GIB:.1f} GiB free at {ROOT}, {need_bytes / GIB:.1f} GiB needed"
    return Finding("disk", free >= need_bytes, detail, f"{need_bytes / GIB:.1f} GiB of free space at {ROOT}")


def require(findings: list[Finding]) -> None:
    """Go on only if everything is usable.

    Raises:
        PrerequisiteError: something is not; all of it is named, with what to install.
    """
    lacking = [item for item in findings if not item.usable]
    if lacking:
        raise PrerequisiteError(
            f"this machine lacks {' and '.join(item.name for item in lacking)}",
            "; ".join(f"{item.name}: {item.detail}" for item in lacking),
            f"provide {'; '.join(item.remedy for item in lacking)}; then type the command again",
        )
