"""`runtime/`: what the image is built from, as pinned in the checkout, read into values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay import pinset
from assay.errors import ConfigurationError
from assay.evaluator import Program, load_evaluator
from assay.paths import relative

BaseKind = Literal["registry", "debian"]
Digest = Field(pattern=r"^[0-9a-f]{64}$")
EVALUATOR = "verifiers"


class Frozen(BaseModel):
    """A table of `images.lock`: its keys are exactly these."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RegistryBase(Frozen):
    """A base image from a registry.

    Attributes:
        reference: Name, tag and manifest digest.
        python: Its interpreter.
        python_version: Major and minor version of it, which decides the wheels.
    """

    reference: str = Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")
    python: str
    python_version: str


class DebianBase(Frozen):
    """A base made by debootstrap.

    Attributes:
        suite: Debian release.
        include: Packages besides the minimal base.
        python: Its interpreter.
        python_version: Major and minor version of it.
    """

    suite: str
    include: tuple[str, ...]
    python: str
    python_version: str


class UvPin(Frozen):
    """The uv inside the image.

    Attributes:
        version: Of the wheel.
        wheel_sha256: Digest of the wheel.
        binary_sha256: Digest of the program in it.
        platform: uv's name for what the wheels inside the image run on.
    """

    version: str
    wheel_sha256: str = Digest
    binary_sha256: str = Digest
    platform: str


class Time(Frozen):
    """Attributes: epoch: seconds since 1970 that no date in the image is later than."""

    epoch: int


class ImagesLock(Frozen):
    """The whole of `images.lock`."""

    registry: RegistryBase
    debian: DebianBase
    uv: UvPin
    time: Time

    def base(self, kind: BaseKind) -> RegistryBase | DebianBase:
        """The base of that kind."""
        return self.registry if kind == "registry" else self.debian


def load_images(runtime: Path | None = None) -> ImagesLock:
    """`images.lock`, or ConfigurationError when it is missing or not valid."""
    path = runtime_file("images.lock", runtime)
    try:
        return ImagesLock.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise ConfigurationError(f"{relative(path)} cannot be used", str(error), "git status") from error


def load_programs(evaluator: str = EVALUATOR) -> tuple[Program, ...]:
    """The programs that an `evaluator.toml` pins; ConfigurationError when they are not valid."""
    return load_evaluator(evaluator).program


def runtime_file(name: str, runtime: Path | None = None) -> Path:
    """A file of `runtime/`: of the given folder, else as the pin set in force has it."""
    return pinset.current().runtime_file(name) if runtime is None else runtime / name
