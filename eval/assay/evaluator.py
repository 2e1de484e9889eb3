"""An evaluator as Assay sees it: a locked environment and a command, described by `evaluator.toml`.

The core never imports one; everything it must know to drive it stands in that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay import pinset, sources
from assay.errors import ConfigurationError
from assay.paths import relative
from assay.profile import SEGMENT, describe, read_toml

Dialect = Literal["vf-eval", "eval", "vf-eval-v0"]
SNAPSHOT = "{snapshot}"


class Table(BaseModel):
    """A table of `evaluator.toml`: its keys are exactly these."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DockerLimits(Table):
    """The limits of each container.

    Attributes:
        workdir: Working directory inside it.
        cpu: Processors.
        memory: Gigabytes.
        pids: Processes and threads; None where the engine's own bound is left.
        disk: Gigabytes that its own files may hold; None where they are not bounded.
    """

    workdir: str
    cpu: float = Field(gt=0)
    memory: float = Field(gt=0)
    pids: int | None = Field(default=None, gt=0)
    disk: float | None = Field(default=None, gt=0)

    def native(self) -> dict[str, str | float]:
        """Those that Verifiers itself holds; the run holds the others (`assay.run.client`, `guard`)."""
        return {"workdir": self.workdir, "cpu": self.cpu, "memory": self.memory}


@dataclass(frozen=True)
class Native:
    """How a profile's run speaks to an evaluator, and what it bounds.

    Attributes:
        dialect: How its command is spoken to, and what its records mean.
        command: In the environment's bin.
        key_variable: The variable in which the command reads the endpoint's key.
        docker: Limits of each container.
    """

    dialect: Dialect
    command: str
    key_variable: str
    docker: DockerLimits


class Editable(Table):
    """A package that is installed editable from a pinned source, without build isolation.

    Attributes:
        name: The distribution.
        version: What its built metadata must say.
        source: Name in `prime-envs.lock`.
        path: Its folder in that source; "." for the whole.
        requires: What its built metadata must require, in any order, markers included.
    """

    name: str = Field(pattern=SEGMENT)
    version: str
    source: str = Field(pattern=SEGMENT)
    path: str = Field(pattern=r"^(\.|\w[\w.-]*(/\w[\w.-]*)*)$")
    requires: tuple[str, ...]


class Route(Table):
    """How a taskset finds its pinned data; `{snapshot}` in a value is the verified directory.

    Attributes:
        taskset: The taskset's id; "-" and "_" are one.
        data: Name in `datasets.lock`.
        set: Dotted keys of the native configuration and the values a run's overrides give them.
        link: A relative path in a fresh working directory that becomes a link to the snapshot.
        environment: Variables of the native command.
        hub: Whether the owned hub cache becomes HF_HUB_CACHE.
    """

    taskset: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    data: str = Field(pattern=SEGMENT)
    set: Mapping[str, str] = {}
    link: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][\w-]*(/[A-Za-z0-9][\w.-]*)+$")
    environment: Mapping[str, str] = {}
    hub: bool = False

    @model_validator(mode="after")
    def _reaches(self) -> Self:
        if not (self.set or self.link or self.environment or self.hub):
            raise ValueError(f"the route of {self.taskset} leads nowhere: set, link, environment or hub")
        return self


class Program(Table):
    """A PEP 723 program that a harness starts inside the sandbox.

    Attributes:
        name: Its pins are `runtime/<name>.pins`.
        object: Where the evaluator's environment has its source: `module:attribute`; or else
        file: where a pinned source has it: `source:path`.
        sha256: Digest of the source's UTF-8 bytes; read from `prime-envs.lock` when not given here.
        harnesses: Who starts it.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    object: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    file: str | None = Field(default=None, pattern=r"^[a-z0-9-]+:\w[\w.-]*(/\w[\w.-]*)*$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    harnesses: tuple[str, ...]

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.object is None) == (self.file is None):
            raise ValueError(f"program {self.name}: give either object or file")
        return self

    @property
    def place(self) -> str:
        """Where its source is, as the file says it."""
        return self.object or str(self.file)


class Evaluator(Table):
    """The whole of `evaluator.toml`.

    Attributes:
        name: Its folder's name.
        version: Of the evaluator.
        python: Which Pythons its environment may have: ">=3.11,<3.14" or "==3.12.*".
        dialect: How its command is spoken to, and what its records mean: "vf-eval" is Verifiers 0.4, "eval"
            is 0.3, "vf-eval-v0" is 0.1. None where no profile runs it, only jobs of a suite, whose backend
            knows how; then command, key_variable and docker are None too.
        command: In the environment's bin.
        absent: Distributions that its packages require and its lock leaves out.
        aside: Whether its environment is made only when it is named, and not with all.
        tasksets: Folders in `eval/tasksets/` that are installed editable.
        sources: Names in `prime-envs.lock` of what must be checked out.
        key_variable: The variable in which the native command reads the endpoint's key.
        environment: Variables the native command gets.
        docker: Limits of each container.
        helpers: Images that it starts by fixed tags beside each container; `images.lock` says what they are.
        editable: Packages installed from the sources.
        route: How tasksets find their data.
        program: What the harnesses start in the sandbox.
    """

    name: str = Field(pattern=SEGMENT)
    version: str
    python: str
    dialect: Dialect | None = None
    command: str | None = None
    absent: tuple[str, ...] = ()
    aside: bool = False
    tasksets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    key_variable: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    environment: Mapping[str, str]
    docker: DockerLimits | None = None
    helpers: tuple[str, ...] = ()
    editable: tuple[Editable, ...] = ()
    route: tuple[Route, ...] = ()
    program: tuple[Program, ...] = ()

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        spoken = ("dialect", "command", "key_variable", "docker")
        missing = [name for name in spoken if getattr(self, name) is None]
        if missing and len(missing) < len(spoken):
            raise ValueError(f"{missing[0]} is missing: {', '.join(spoken)} are given together or not at all")
        for item in self.editable:
            if item.source not in self.sources:
                raise ValueError(f"{item.name} comes from {item.source!r}, which is not among the sources")
        for program in self.program:
            if program.file is not None and program.file.partition(":")[0] not in self.sources:
                raise ValueError(f"program {program.name} comes from {program.file!r}, which is in no source")
        tasksets = [same(item.taskset) for item in self.route]
        if len(set(tasksets)) != len(tasksets):
            raise ValueError("two routes have one taskset")
        return self

    @property
    def native(self) -> Native:
        """How a profile's run speaks to it; ConfigurationError when no profile runs it."""
        if self.dialect and self.command and self.key_variable and self.docker:
            return Native(self.dialect, self.command, self.key_variable, self.docker)
        raise ConfigurationError(
            f'evaluator "{self.name}" runs no profile',
            "its evaluator.toml has no dialect: jobs of a suite ask it",
            "name another evaluator in profiles.toml",
        )

    @property
    def home(self) -> Path:
        """Its folder."""
        return pinset.current().evaluator(self.name)

    @property
    def binaries(self) -> Path:
        """Where its environment's programs are."""
        return pinset.current().environment(self.name) / "bin"

    def route_of(self, taskset: str) -> Route | None:
        """How that taskset finds its data; None when it needs none."""
        return next((item for item in self.route if same(item.taskset) == same(taskset)), None)


def same(taskset: str) -> str:
    """A taskset's id with one spelling, since "-" and "_" name the same."""
    return taskset.replace("_", "-")


def load_evaluator(name: str) -> Evaluator:
    """The evaluator of that name; ConfigurationError when there is none or its file is not valid."""
    path = pinset.current().evaluator(name) / "evaluator.toml"
    found = read_toml(path)
    try:
        if isinstance(found.get("program"), list):
            found["program"] = [with_digest(name, table) for table in found["program"]]
        evaluator = Evaluator.model_validate(found)
        if evaluator.name != name:
            raise ValueError(f"name is {evaluator.name!r}, and its folder is {name!r}")
    except ValueError as error:
        known = (Evaluator, Editable, Route, Program, DockerLimits)
        reason = describe(error, *known) if isinstance(error, ValidationError) else str(error)
        raise ConfigurationError(
            f"{relative(path)} is not valid", reason, f"edit {relative(path)}"
        ) from error
    return evaluator


def with_digest(evaluator: str, table: object) -> object:
    """A `[[program]]` with its digest, from `prime-envs.lock` when it has none of its own."""
    if not isinstance(table, dict) or "sha256" in table:
        return table
    digest = sources.load_lock().program(evaluator, str(table.get("name")))
    return table if digest is None else {**table, "sha256": digest}
