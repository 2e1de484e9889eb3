"""What the Dockerfile is given: the programs with their native locks, their wheels, and uv."""

from __future__ import annotations

import shutil
from pathlib import Path

from assay.digest import sha256_file
from assay.sandbox.images import BaseKind
from assay.sandbox.programs import export, lock
from assay.sandbox.recipe import Recipe
from assay.sandbox.uv import pinned_uv
from assay.sandbox.wheels import copy_cache, wheel_cache


def make_context(recipe: Recipe, kind: BaseKind, context: Path) -> dict[str, str]:
    """Put all that the Dockerfile copies into a folder; returns each native lock's SHA-256 by program.

    Raises:
        PrerequisiteError: the evaluator is not set up, or the package index does not answer.
        VerificationError: a program, its lock or a download is not the pinned one.
    """
    shutil.rmtree(context, ignore_errors=True)
    (context / "programs").mkdir(parents=True)
    shutil.copyfile(recipe.file("Dockerfile"), context / "Dockerfile")
    sources = export(recipe.programs, recipe.evaluator)
    locks = {}
    for program in recipe.programs:
        path = lock(program, sources[program.name], context / "programs", recipe.runtime)
        locks[program.name] = sha256_file(path.with_name(path.name + ".lock"))
        version = recipe.images.base(kind).python_version
        copy_cache(wheel_cache(recipe.pins(program), recipe.images.uv, version), context / "uv-cache")
    pinned_uv(recipe.images.uv, context)
    return locks
