"""The recipe: everything in the checkout that decides an evaluator's image, each by digest.

It is known without an engine or a network, so an image of the same recipe is not built again. The versions
that a Debian base happens to get are not part of it (they are recorded with the image).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.digest import combined_digest, sha256_file, value_digest
from assay.errors import ConfigurationError, PrerequisiteError
from assay.evaluator import Program
from assay.paths import relative
from assay.sandbox.images import BaseKind, HelperPin, ImagesLock, load_images, load_programs, runtime_file

BUILDERS = ("archive.py", "build.py", "context.py", "debian.py", "programs.py", "uv.py", "wheels.py")
"""Modules here that decide what ends up in the image."""


@dataclass(frozen=True)
class Recipe:
    """What an evaluator's image is made from.

    Attributes:
        evaluator: Whose programs it holds.
        images: `images.lock`.
        programs: The programs.
        helpers: The images that the evaluator starts beside it.
        runtime: Where Dockerfile, image pins and program pins are; the pin set's when None.
    """

    evaluator: str
    images: ImagesLock
    programs: tuple[Program, ...]
    helpers: tuple[HelperPin, ...]
    runtime: Path | None = None

    def file(self, name: str) -> Path:
        """A file of `runtime/`."""
        return runtime_file(name, self.runtime)

    def pins(self, program: Program) -> Path:
        """Where a program's pins are."""
        return self.file(f"{program.name}.pins")

    def require_pins(self) -> None:
        """PrerequisiteError, with the command that writes them, unless every program has its pins."""
        lacking = [self.pins(program) for program in self.programs if not self.pins(program).is_file()]
        if lacking:
            names = ", ".join(relative(path) for path in lacking)
            raise PrerequisiteError(
                f"the packages of {len(lacking)} program(s) of {self.evaluator} are not pinned: {names}",
                "an image is built from reviewed pins alone",
                f"eval/scripts/sandbox {self.evaluator} --write-pins, then review and commit {names}",
            )

    def parts(self, kind: BaseKind) -> dict[str, str]:
        """What goes into the image on that base, by name: a digest, or the pinned value itself.

        Raises:
            ConfigurationError: a file of `runtime/` is missing.
        """
        here = Path(__file__).parent
        uv = self.images.uv
        parts = {
            "evaluator": self.evaluator,
            "base": f"{kind} {value_digest(self.images.base(kind).model_dump(mode='json'))}",
            "uv": f"{uv.version} {uv.binary_sha256} {uv.platform}",
            "epoch": str(self.images.time.epoch),
            "builder": combined_digest({name: sha256_file(here / name) for name in BUILDERS}),
            "helpers": value_digest([pin.model_dump(mode="json") for pin in self.helpers]),
        }
        files = {"Dockerfile": self.file("Dockerfile")}
        for program in self.programs:
            parts[f"program {program.name}"] = program.sha256
            files[f"{program.name}.pins"] = self.pins(program)
        for name, path in files.items():
            try:
                parts[name] = sha256_file(path)
            except OSError as error:
                raise ConfigurationError(
                    f"{relative(path)} cannot be read", str(error), "git status"
                ) from error
        return parts


def load_recipe(evaluator: str, runtime: Path | None = None) -> Recipe:
    """The recipe of an evaluator's image.

    Raises:
        ConfigurationError: the evaluator is unknown or runs nothing in a sandbox, or a file is not valid.
    """
    programs = load_programs(evaluator)
    if not programs:
        raise ConfigurationError(
            f'evaluator "{evaluator}" runs nothing in a sandbox',
            "its evaluator.toml has no [[program]]",
            "assay sandbox --help",
        )
    images = load_images(runtime)
    return Recipe(evaluator, images, programs, images.helpers(evaluator), runtime)


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the parts that differ between two recipes."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
