"""The helper images that Verifiers starts by tags fixed in its code, in each container's network, as root.

One passes Verifiers a socket that listens inside the container's network, another cuts that network's egress.
`evaluator.toml` names the tags, `images.lock` says what stands behind each: an image of a registry, by the
exact digests of manifest and configuration; or one made here, which is the sandbox's layer with root as its
user. The tags are every checkout's on an engine, so none is ever moved: a pinned one that names something
else is an error, and one that is to be made here is left as it is and recorded, whosoever it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from docker import DockerClient
from pydantic import BaseModel, ConfigDict

from assay.console import say
from assay.errors import PrerequisiteError, RunError, VerificationError
from assay.sandbox.images import HelperPin
from assay.sandbox.load import inspect, layers
from assay.sandbox.registry import obtain

ROLE = "assay.role"
MADE = "helper"


class Helper(BaseModel):
    """A helper image as it was found under its tag.

    Attributes:
        reference: The tag.
        image_id: The engine's id of it.
        pinned: Whether its identity is fixed in `images.lock`.
        ours: Whether it was made here.
        config_digest: Digest of its configuration; None when the engine calls it by something else.
        manifest_digests: Digests by which the engine or a registry knows its manifest.
        diff_ids: Digest of each layer's bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reference: str
    image_id: str
    pinned: bool
    ours: bool
    config_digest: str | None
    manifest_digests: tuple[str, ...]
    diff_ids: tuple[str, ...]


def settle_pinned(client: DockerClient, pins: Sequence[HelperPin], registry: str | None) -> None:
    """Have the pinned ones under their tags, pulled by digest where a tag is free.

    Raises:
        PrerequisiteError: one is missing, and no registry gives it.
        VerificationError: a tag names something else, or a registry gives something else.
    """
    for pin in pins:
        if pin.made:
            continue
        found = inspect(client, pin.reference)
        if found is None:
            found = obtain(client, pin.reference, pin.manifest, registry)
            verify(pin, found)
            repository, _, tag = pin.reference.rpartition(":")
            client.images.get(str(found["Id"])).tag(repository, tag)
        verify(pin, found)


def verify(pin: HelperPin, found: dict[str, Any]) -> None:
    """VerificationError unless it is the pinned image, as a classic engine or containerd's store names it."""
    image = str(found["Id"])
    if image in (pin.config, pin.manifest):
        return
    aside = f"localhost/other-{pin.reference}"
    raise VerificationError(
        f"{pin.reference} is another image than the pinned one",
        f"found {image}, pinned is {pin.config} (manifest {pin.manifest}); Verifiers starts it by that tag, "
        "and no tag is moved here: it may be another's",
        f"docker tag {pin.reference} {aside}; docker rmi {pin.reference}; eval/scripts/sandbox"
        " (or use an engine of its own: DOCKER_HOST=unix://…)",
    )


def settle(client: DockerClient, pins: Sequence[HelperPin], made: str | None) -> tuple[Helper, ...]:
    """What stands behind each tag, after a free one that is to be made here was given to `made`.

    Args:
        client: The engine.
        pins: What `images.lock` says of each tag.
        made: Id of the image made for it; None when there is none.

    Raises:
        VerificationError: a pinned tag names something else.
        RunError: a tag is free and nothing was made for it.
    """
    helpers = []
    for pin in pins:
        found = inspect(client, pin.reference)
        if found is None and pin.made and made is not None:
            repository, _, tag = pin.reference.rpartition(":")
            client.images.get(made).tag(repository, tag)
            found = inspect(client, pin.reference)
        if found is None:
            raise RunError(
                f"the image {pin.reference} is gone", "it was there a moment ago", "eval/scripts/sandbox"
            )
        if not pin.made:
            verify(pin, found)
        elif not is_ours(found):
            say(
                f"assay: {pin.reference} is another's image, {found['Id']}; it is used as it is, and recorded"
            )
        helpers.append(describe(pin, found))
    return tuple(helpers)


def describe(pin: HelperPin, found: dict[str, Any]) -> Helper:
    """An image under a helper's tag, as a value."""
    image = str(found["Id"])
    manifests = {str(name).rpartition("@")[2] for name in found.get("RepoDigests") or []}
    if image == pin.manifest:
        manifests.add(image)
    return Helper(
        reference=pin.reference,
        image_id=image,
        pinned=not pin.made,
        ours=is_ours(found),
        config_digest=pin.config or (None if image in manifests else image),
        manifest_digests=tuple(sorted(manifests)),
        diff_ids=layers(found),
    )


def compare(client: DockerClient, recorded: Sequence[Helper]) -> None:
    """Hold the tags against what was recorded of them.

    Raises:
        PrerequisiteError: one is gone.
        VerificationError: one names something else by now.
    """
    for helper in recorded:
        found = inspect(client, helper.reference)
        if found is None:
            raise PrerequisiteError(
                f"the image {helper.reference} is gone",
                f"recorded is {helper.image_id}",
                "eval/scripts/sandbox",
            )
        if str(found["Id"]) != helper.image_id:
            raise VerificationError(
                f"{helper.reference} is not the recorded image",
                f"found {found['Id']}, recorded {helper.image_id}",
                "eval/scripts/sandbox",
            )


def is_ours(attributes: dict[str, Any]) -> bool:
    """Whether an image was made here, by its label."""
    config = attributes.get("Config")
    labels = config.get("Labels") if isinstance(config, dict) else None
    return isinstance(labels, dict) and labels.get(ROLE) in (MADE, "network")
