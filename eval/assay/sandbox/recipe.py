"""The recipe: everything in the checkout that decides the image, each by digest.

It is known without an engine or a network, so an image of the same recipe is not built again. The versions
that a Debian base happens to get are not part of it (they are recorded with the image).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.digest import combined_digest, sha256_file, value_digest
from assay.errors import ConfigurationError
from assay.evaluator import Program
from assay.paths import relative
from assay.sandbox.images import BaseKind, ImagesLock, runtime_file

BUILDERS = ("archive.py", "build.py", "debian.py", "programs.py", "uv.py", "wheels.py")
"""Modules here that decide what ends up in the image."""


def recipe(
    kind: BaseKind, images: ImagesLock, programs: Sequence[Program], runtime: Path | None = None
) -> dict[str, str]:
    """What goes into the image, by name: a digest, or the pinned value itself.

    Raises:
        ConfigurationError: a file of `runtime/` is missing.
    """
    here = Path(__file__).parent
    base = images.base(kind)
    parts = {
        "base": f"{kind} {value_digest(base.model_dump(mode='json'))}",
        "uv": f"{images.uv.version} {images.uv.binary_sha256} {images.uv.platform}",
        "epoch": str(images.time.epoch),
        "builder": combined_digest({name: sha256_file(here / name) for name in BUILDERS}),
    }
    files = {"Dockerfile": runtime_file("Dockerfile", runtime)}
    for program in programs:
        parts[f"program {program.name}"] = program.sha256
        files[f"{program.name}.pins"] = runtime_file(f"{program.name}.pins", runtime)
    for name, path in files.items():
        try:
            parts[name] = sha256_file(path)
        except OSError as error:
            raise ConfigurationError(f"{relative(path)} cannot be read", str(error), "git status") from error
    return parts


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the parts that differ between two recipes."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
