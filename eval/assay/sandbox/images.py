"""`runtime/`: what the image is built from, as pinned in the checkout, read into values."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay import pinset
from assay.errors import ConfigurationError
from assay.evaluator import Program, load_evaluator
from assay.paths import relative

BaseKind = Literal["registry", "debian"]
Digest = Field(pattern=r"^[0-9a-f]{64}$")
ImageDigest = Field(pattern=r"^sha256:[0-9a-f]{64}$")


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
        image: The image of that version, which is not used.
        image_manifest: Digest of its manifest.
    """

    version: str
    wheel_sha256: str = Digest
    binary_sha256: str = Digest
    platform: str
    image: str
    image_manifest: str = ImageDigest


class HelperPin(Frozen):
    """What stands behind a tag that Verifiers starts: an image of a registry, or one made here.

    Attributes:
        reference: The tag.
        manifest: Digest of its manifest; empty for one that is made here.
        config: Digest of its configuration; empty for one that is made here.
        made: Whether it is made here, of the sandbox's layer.
    """

    reference: str = Field(pattern=r"^[a-z0-9][\w./-]*:[\w.-]+$")
    manifest: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    config: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    made: bool = False

    @model_validator(mode="after")
    def _identified(self) -> Self:
        if self.made == bool(self.manifest or self.config) or bool(self.manifest) != bool(self.config):
            raise ValueError(f"{self.reference}: give both manifest and config, or made = true")
        return self


class Time(Frozen):
    """Attributes: epoch: seconds since 1970 that no date in the image is later than."""

    epoch: int


class ImagesLock(Frozen):
    """The whole of `images.lock`."""

    registry: RegistryBase
    debian: DebianBase
    uv: UvPin
    time: Time
    helper: tuple[HelperPin, ...] = ()

    @model_validator(mode="after")
    def _tags_differ(self) -> Self:
        tags = [pin.reference for pin in self.helper]
        if len(set(tags)) != len(tags):
            raise ValueError("two helpers have one tag")
        return self

    def helpers(self, evaluator: str) -> tuple[HelperPin, ...]:
        """The helpers that an evaluator starts; ConfigurationError when one of its tags is not pinned."""
        pins = {pin.reference: pin for pin in self.helper}
        tags = load_evaluator(evaluator).helpers
        for tag in tags:
            if tag not in pins:
                raise ConfigurationError(
                    f"images.lock does not say what the image {tag} is",
                    f"evaluator {evaluator} starts it by that tag",
                    "add a [[helper]] for it to images.lock",
                )
        return tuple(pins[tag] for tag in tags)

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


def load_programs(evaluator: str) -> tuple[Program, ...]:
    """The programs that an `evaluator.toml` pins; ConfigurationError when they are not valid."""
    return load_evaluator(evaluator).program


def runtime_file(name: str, runtime: Path | None = None) -> Path:
    """A file of `runtime/`: of the given folder, else as the pin set in force has it."""
    return pinset.current().runtime_file(name) if runtime is None else runtime / name
