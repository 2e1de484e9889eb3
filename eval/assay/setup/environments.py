"""The environments of a checkout: which there are, what each is locked by, and what was installed.

An environment is a directory that `assay.setup` alone writes. It holds exactly what its two locks name and
the checkout's own packages, installed editable.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import pinset
from assay.bootstrap import HIGHEST, LOWEST
from assay.errors import ConfigurationError
from assay.names import nearest
from assay.paths import ROOT, TASKSETS

GIB = 1 << 30
# Measured: what a first set-up takes, the share of the cache included, rounded up.
NEED_BYTES = {
    "assay": GIB // 2,
    "tests": GIB,
    "verifiers": 3 * GIB // 2,
    "prime-envs": 2 * GIB,
    "direct": 3 * GIB // 2,
    "evalscope": 5 * GIB // 2,
    "evalscope-vector": 16 * GIB,
    "inspect": 3 * GIB // 2,
}
STAMP = "assay-environment.json"
SEAL = "assay-seal.json"


@dataclass(frozen=True)
class Editable:
    """A package of a pinned source, installed editable, and what its metadata must say.

    `path` is its folder in the source ("." for the whole); `requires` are its requirements in any order.
    """

    name: str
    version: str
    source: str
    path: str
    requires: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """Where its project lies."""
        return pinset.current().sources / self.source / self.path


@dataclass(frozen=True)
class Program:
    """A program of an evaluator: where its source is, and its digest, if that is not in `prime-envs.lock`.

    `place` is `module:attribute` of the environment, or, when `is_file`, `source:path`.
    """

    name: str
    place: str
    is_file: bool
    sha256: str | None


@dataclass(frozen=True)
class Environment:
    """What an environment must be.

    `projects` are directories of this checkout with a pyproject.toml, installed editable; `editables` come
    from pinned `sources` instead. `absent` are distributions that its packages require and its lock leaves
    out. One that is `aside` is made only when it is named. `need_bytes` is what a first set-up takes on the
    disk, downloads and their cache included.
    """

    name: str
    directory: Path
    build_lock: Path
    requirements_lock: Path
    projects: tuple[Path, ...]
    need_bytes: int
    lowest: tuple[int, int] = LOWEST
    highest: tuple[int, int] = HIGHEST
    sources: tuple[str, ...] = ()
    editables: tuple[Editable, ...] = ()
    programs: tuple[Program, ...] = ()
    absent: tuple[str, ...] = ()
    aside: bool = False

    @property
    def python(self) -> Path:
        """The environment's own Python."""
        return self.directory / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """The file that is written last: without it the environment is not whole."""
        return self.directory / STAMP

    @property
    def seal(self) -> Path:
        """The digests of the files that no RECORD covers, as they were when the set-up ended."""
        return self.directory / SEAL


@dataclass(frozen=True)
class EnvironmentState:
    """What an environment is: a frozen input of every run that uses it.

    The digests do not depend on where the checkout lies: launchers and other files that hold its path are
    checked, but left out. `digest` covers packages, sources and the interpreter.
    """

    name: str
    directory: str
    python_version: str
    python_path: str
    python_digest: str
    uv_version: str
    locks: Mapping[str, str]
    versions: Mapping[str, str]
    files: int
    packages_digest: str
    sources_digest: str
    digest: str


def of_evaluator(name: str) -> Environment:
    """The environment that an evaluator's `evaluator.toml` describes.

    Raises:
        ConfigurationError: the description is missing, or what an environment is made from cannot be used.
    """
    home = pinset.current().evaluator(name)
    try:
        described = tomllib.loads((home / "evaluator.toml").read_text("utf-8"))
        lowest, highest = python_range(described["python"])
        projects = tuple(TASKSETS / str(package) for package in described.get("tasksets", []))
        editables = tuple(read_editable(table) for table in described.get("editable", []))
        programs = tuple(read_program(table) for table in described.get("program", []))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{home / 'evaluator.toml'} does not describe an evaluator", repr(error), "git status"
        ) from error
    return Environment(
        name=name,
        directory=pinset.current().environment(name),
        build_lock=home / "build.lock",
        requirements_lock=home / "requirements.lock",
        projects=projects,
        need_bytes=NEED_BYTES.get(name, 2 * GIB),
        lowest=lowest,
        highest=highest,
        sources=tuple(str(source) for source in described.get("sources", [])),
        editables=editables,
        programs=programs,
        absent=tuple(str(distribution) for distribution in described.get("absent", [])),
        aside=described.get("aside") is True,
    )


def read_editable(table: Mapping[str, Any]) -> Editable:
    """One `[[editable]]`; KeyError when a key is missing, ValueError when its folder is in no source."""
    if Path(table["path"]).is_absolute() or ".." in Path(table["path"]).parts:
        raise ValueError(f"editable {table['name']}: path {table['path']!r} is not in its source")
    return Editable(table["name"], table["version"], table["source"], table["path"], tuple(table["requires"]))


def read_program(table: Mapping[str, Any]) -> Program:
    """One `[[program]]`; KeyError when a key is missing."""
    is_file = "file" in table
    return Program(table["name"], table["file" if is_file else "object"], is_file, table.get("sha256"))


def python_range(text: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The lowest and highest (major, minor) of text like ">=3.11,<3.14" or "==3.12.*"; else ValueError."""
    one = re.fullmatch(r"==\s*3\.(\d+)\.\*", text.strip())
    if one is not None:
        return (3, int(one[1])), (3, int(one[1]))
    match = re.fullmatch(r">=\s*3\.(\d+)\s*,\s*<\s*3\.(\d+)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is neither of the form '>=3.x,<3.y' nor '==3.x.*'")
    return (3, int(match[1])), (3, int(match[2]) - 1)


def catalogue() -> dict[str, Environment]:
    """Every environment of this checkout by name: `assay`, `tests`, and one for each evaluator."""
    found = {
        "assay": Environment(
            name="assay",
            directory=ROOT / ".venv",
            build_lock=ROOT / "build.lock",
            requirements_lock=ROOT / "requirements.lock",
            projects=(ROOT,),
            need_bytes=NEED_BYTES["assay"],
        ),
        "tests": Environment(
            name="tests",
            directory=ROOT / "tests" / ".venv",
            build_lock=ROOT / "build.lock",
            requirements_lock=ROOT / "tests" / "requirements.lock",
            projects=(ROOT,),
            need_bytes=NEED_BYTES["tests"],
        ),
    }
    found.update((name, of_evaluator(name)) for name in pinset.current().evaluators())
    return found


ENVIRONMENTS = catalogue()


def named(names: Iterable[str]) -> list[Environment]:
    """The environments of the given names, each once, in the order given.

    Raises:
        ConfigurationError: there is no environment of that name.
    """
    chosen = []
    for name in dict.fromkeys(names):
        if name not in ENVIRONMENTS:
            raise ConfigurationError(
                f'there is no environment "{name}"', nearest(name, ENVIRONMENTS), "eval/scripts/setup --help"
            )
        chosen.append(ENVIRONMENTS[name])
    return chosen
