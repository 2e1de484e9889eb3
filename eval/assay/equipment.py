"""What Assay works with on a machine: each tool, what it is for, and what to type where it is missing.

It needs nothing but the standard library, since `assay doctor` is asked before anything is set up.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.bootstrap import Interpreter, find, version_range
from assay.errors import AssayError
from assay.paths import TOOLS
from assay.setup import ENVIRONMENTS, machine, stamp
from assay.shell import ENTER, Shell
from assay.tools import Program, first_program, program

DEVELOPMENT = (3, 13)
Versions = tuple[tuple[int, int], tuple[int, int]]
"""The lowest and the highest accepted (major, minor)."""


@dataclass(frozen=True)
class Tool:
    """One tool: what came of looking for it.

    Attributes:
        name: What it is called.
        purpose: What cannot be done without it.
        needed: Whether Assay cannot do without it.
        program: It, where it is there.
        problem: Why it cannot be used; empty when it can.
        remedy: What to type or provide when it cannot be used.
        pinned_by: The lock that names its bytes; None when none does.
    """

    name: str
    purpose: str
    needed: bool
    program: Program | None
    problem: str
    remedy: str
    pinned_by: str | None

    @property
    def usable(self) -> bool:
        """Whether it is there and works."""
        return not self.problem

    def describe(self) -> dict[str, object]:
        """Its attributes as one flat JSON object."""
        found = self.program.describe() if self.program else {}
        keys = ("found", "path", "version", "sha256", "store_path")
        value = {key: found.get(key) for key in keys}
        return {
            "name": self.name,
            "purpose": self.purpose,
            "needed": self.needed,
            "usable": self.usable,
            **value,
            "pinned": self.pinned_by is not None,
            "pinned_by": self.pinned_by,
            "problem": self.problem,
            "remedy": "" if self.usable else self.remedy,
        }


def shellcheck() -> Program | None:
    """The tests' own, which is locked, or the one on PATH."""
    return first_program("shellcheck", [ENVIRONMENTS["tests"].directory / "bin" / "shellcheck", "shellcheck"])


def pinned_by(found: Program | None, shell: Shell) -> str | None:
    """The lock that names the program's bytes; None when none does."""
    if found is None:
        return None
    if shell.pinned and found.store_path is not None:
        return "flake.lock"
    if Path(found.path).is_relative_to(TOOLS):
        return "eval/assay/setup/tools.lock"
    tests = ENVIRONMENTS["tests"].directory
    if Path(found.found).is_relative_to(tests) and Path(found.path).is_relative_to(tests):
        return "tests/requirements.lock"
    return None


def interpreter() -> tuple[Interpreter | None, AssayError | None]:
    """The Python that set-ups use, or why there is none."""
    try:
        return find(known=stamp.known_interpreters(ENVIRONMENTS)), None
    except AssayError as error:
        return None, error


def survey(
    shell: Shell,
    there: Mapping[str, Program | None],
    python: Interpreter | None,
    error: AssayError | None,
) -> Iterator[Tool]:
    """Look at every tool.

    Args:
        shell: What shell this is.
        there: The programs that were found.
        python: The Python that set-ups use; None when there is none.
        error: Why there is none.
    """
    yield _python(shell, there["python"], error)
    yield from _other_pythons(shell)
    git = machine.git()
    cuda = "the CUDA toolkit, 12.0 or newer, or the pinned shell: nix develop .#cuda --no-write-lock-file"
    yield _tool(shell, "uv", there["uv"], "every set-up, which installs it", "eval/scripts/setup assay")
    yield _tool(
        shell,
        "git",
        there["git"],
        "sources and the worktree's record",
        _get("git"),
        needed=True,
        problem="" if git.usable else git.detail,
    )
    yield _tool(shell, "docker", there["docker"], "every profile but demo", _get("docker.io"))
    yield _tool(shell, "jq", there["jq"], "eval/scripts/reward", _get("jq"))
    yield _tool(shell, "shellcheck", shellcheck(), "eval/scripts/test", "eval/scripts/setup tests")
    if python is not None:
        yield _compiler(shell, "cc", machine.c_compiler(python), "packages that come as source")
    yield _compiler(shell, "c++", machine.cxx_compiler(), "the server's engine")
    yield _tool(shell, "nvcc", there["nvcc"], "assay serve --device cuda", cuda)
    yield _tool(shell, "nix", there["nix"], "the pinned shell", "apt-get install nix-bin (Debian)")


def _get(package: str) -> str:
    return f"apt-get install {package} (Debian), or the pinned shell: {ENTER}"


def _tool(
    shell: Shell,
    name: str,
    found: Program | None,
    purpose: str,
    remedy: str,
    needed: bool = False,
    problem: str = "",
) -> Tool:
    """A tool that is usable where it is found, starts, and has no other problem."""
    if not problem and found is None:
        problem = "it is not here"
    elif not problem and found is not None and found.version is None:
        problem = f"{found.found} --version tells no version"
    return Tool(name, purpose, needed, found, problem, remedy, pinned_by(found, shell))


def _python(shell: Shell, found: Program | None, error: AssayError | None) -> Tool:
    problem, remedy = (f"{error.what}; {error.why}", error.next) if error else ("", "")
    return _tool(shell, "python", found, "everything", remedy, needed=True, problem=problem)


def _other_pythons(shell: Shell) -> Iterator[Tool]:
    """The Pythons that only some evaluators take, and the one for development."""
    general = (ENVIRONMENTS["assay"].lowest, ENVIRONMENTS["assay"].highest)
    special: dict[Versions, list[str]] = {}
    for item in ENVIRONMENTS.values():
        if (item.lowest, item.highest) != general:
            special.setdefault((item.lowest, item.highest), []).append(item.name)
    for versions, names in special.items():
        yield _some_python(shell, None, versions, f"evaluators {', '.join(names)}")
    asked = os.environ.get("ASSAY_PYTHON_DEV") or None
    yield _some_python(shell, asked, (DEVELOPMENT, DEVELOPMENT), "development, the newest that is supported")


def _some_python(shell: Shell, asked: str | None, versions: Versions, purpose: str) -> Tool:
    """The Python of some versions that a set-up would take."""
    name = f"python {version_range(*versions)}"
    try:
        found = find(asked, stamp.known_interpreters(ENVIRONMENTS), *versions)
    except AssayError as error:
        return Tool(name, purpose, False, None, error.what, error.next, None)
    return _tool(shell, name, program(name, found.path), purpose, "")


def _compiler(shell: Shell, name: str, tried: machine.Finding, purpose: str) -> Tool:
    """A compiler that really compiled something, or why none did."""
    found = program(name, shlex.split(tried.detail)[0]) if tried.usable else None
    problem = "" if tried.usable else tried.detail
    remedy = f"{tried.remedy}, or the pinned shell: {ENTER}"
    return _tool(shell, name, found, purpose, remedy, needed=True, problem=problem)
