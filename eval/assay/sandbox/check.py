"""Is an evaluator's image there, of this checkout's recipe, and as recorded? Changes nothing."""

from __future__ import annotations

from pathlib import Path

from docker import DockerClient

from assay.digest import combined_digest
from assay.errors import PrerequisiteError, VerificationError
from assay.sandbox import helper_images
from assay.sandbox.engine import FAILURES, connect, require_engine
from assay.sandbox.load import inspect, layers
from assay.sandbox.recipe import Recipe, changed, load_recipe
from assay.sandbox.record import Record, SandboxImage, read_record


def check(evaluator: str, runtime: Path | None = None) -> SandboxImage:
    """The recorded image, after everything recorded of it was found to hold.

    Args:
        evaluator: Whose image it is.
        runtime: Where Dockerfile, image pins and program pins are; the pin set's when None.

    Raises:
        ConfigurationError: a file of `runtime/` is missing or not valid.
        PrerequisiteError: no engine answers, nothing was built, an image is gone or of an older recipe.
        VerificationError: the record or an image is not what the build wrote.
    """
    require_engine()
    record = read_current(load_recipe(evaluator, runtime))
    try:
        with connect() as client:
            compare(client, record)
            helper_images.compare(client, record.helpers)
    except FAILURES as error:
        why = str(error).splitlines()[0]
        raise PrerequisiteError("the Docker engine failed", why, again(evaluator)) from error
    return record.image


def again(evaluator: str) -> str:
    """The command that builds an evaluator's image."""
    return f"eval/scripts/sandbox {evaluator}"


def read_current(recipe: Recipe) -> Record:
    """The record of the recipe's image; PrerequisiteError when it is of another (or see `read_record`)."""
    record = read_record(recipe.evaluator)
    now = recipe.parts(record.image.base)
    different = changed(record.recipe, now)
    if different or combined_digest(now) != record.image.recipe_digest:
        raise PrerequisiteError(
            f"the sandbox image of {recipe.evaluator} was built from another recipe",
            f"changed since: {', '.join(different)}",
            again(recipe.evaluator),
        )
    return record


def compare(client: DockerClient, record: Record) -> None:
    """Hold the image that the engine has against the record (see `check` for the errors)."""
    image = record.image
    found = inspect(client, image.image_id)
    if found is None:
        raise PrerequisiteError(
            f"the sandbox image {image.image_id} is gone",
            "the engine no longer has it",
            again(image.evaluator),
        )
    if layers(found) != image.diff_ids:
        raise VerificationError(
            f"the sandbox image {image.image_id} does not hold the recorded layers",
            f"found {', '.join(layers(found))}, recorded {', '.join(image.diff_ids)}",
            again(image.evaluator),
        )
    if image.image_id not in {image.config_digest, *record.manifest_digests}:
        raise VerificationError(
            f"the recorded image id {image.image_id} is no digest of its configuration or manifest",
            "the record was changed",
            again(image.evaluator),
        )
    tagged = inspect(client, image.reference)
    if tagged is not None and tagged["Id"] != image.image_id:
        raise VerificationError(
            f"{image.reference} is not the recorded image",
            f"found {tagged['Id']}, recorded {image.image_id}",
            again(image.evaluator),
        )
