"""Is the sandbox image there, of this checkout's recipe, and the one that was recorded? Changes nothing."""

from __future__ import annotations

from pathlib import Path

from docker import DockerClient

from assay.digest import combined_digest
from assay.errors import PrerequisiteError, VerificationError
from assay.sandbox import network
from assay.sandbox.engine import FAILURES, connect, require_engine
from assay.sandbox.images import load_images, load_programs
from assay.sandbox.load import inspect, layers
from assay.sandbox.recipe import changed, recipe
from assay.sandbox.record import Record, SandboxImage, read_record

AGAIN = "eval/scripts/sandbox"


def check(runtime: Path | None = None) -> SandboxImage:
    """The recorded image, after everything recorded of it was found to hold.

    Args:
        runtime: Where Dockerfile, image pins and program pins are.

    Raises:
        ConfigurationError: a file of `runtime/` is missing or not valid.
        PrerequisiteError: no engine answers, nothing was built, the image is gone or of an older recipe.
        VerificationError: the record or an image is not what the build wrote.
    """
    require_engine()
    record = read_record()
    now = recipe(record.image.base, load_images(runtime), load_programs(), runtime)
    different = changed(record.recipe, now)
    if different or combined_digest(now) != record.image.recipe_digest:
        raise PrerequisiteError(
            "the sandbox image was built from another recipe", f"changed since: {', '.join(different)}", AGAIN
        )
    try:
        with connect() as client:
            compare(client, record)
    except FAILURES as error:
        raise PrerequisiteError("the Docker engine failed", str(error).splitlines()[0], AGAIN) from error
    return record.image


def compare(client: DockerClient, record: Record) -> None:
    """Hold what the engine has against the record (see `check` for the errors)."""
    image = record.image
    found = inspect(client, image.image_id)
    if found is None:
        raise PrerequisiteError(
            f"the sandbox image {image.image_id} is gone", "the engine no longer has it", AGAIN
        )
    if layers(found) != image.diff_ids:
        raise VerificationError(
            f"the sandbox image {image.image_id} does not hold the recorded layers",
            f"found {', '.join(layers(found))}, recorded {', '.join(image.diff_ids)}",
            AGAIN,
        )
    known = {image.config_digest, *record.manifest_digests}
    if image.image_id not in known:
        raise VerificationError(
            f"the recorded image id {image.image_id} is no digest of its configuration or manifest",
            "the record was changed",
            AGAIN,
        )
    tagged = {image.reference: image.image_id, network.TAG: image.network_image_id}
    for tag, recorded in tagged.items():
        there = inspect(client, tag)
        if there is None:
            raise PrerequisiteError(f"the image {tag} is gone", f"recorded is {recorded}", AGAIN)
        if there["Id"] != recorded:
            raise VerificationError(
                f"{tag} is not the recorded image", f"found {there['Id']}, recorded {recorded}", AGAIN
            )
