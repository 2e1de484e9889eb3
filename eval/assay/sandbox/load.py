"""Loading archives into the engine, and asking it what an image is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import ImageNotFound

from assay.errors import RunError
from assay.sandbox.archive import Image


def load_images_from(client: DockerClient, archive: Path, images: tuple[Image, ...]) -> tuple[str, ...]:
    """Load an archive and return the id the engine gave each of its images.

    A classic engine calls an image by its configuration's digest, one with containerd's store by its
    manifest's; so the id is asked for by tag, and the layers are compared.

    Raises:
        RunError: the engine did not take what it was given.
    """
    with archive.open("rb") as data:
        client.images.load(data)
    ids = []
    for image in images:
        found = inspect(client, image.tags[0])
        if found is None:
            raise RunError(f"the engine took an archive but has no image {image.tags[0]}", "", "docker info")
        ids.append(str(found["Id"]))
    return tuple(ids)


def inspect(client: DockerClient, reference: str) -> dict[str, Any] | None:
    """What the engine says of an image by id or tag; None when it has none."""
    try:
        return dict(client.images.get(reference).attrs)
    except ImageNotFound:
        return None


def layers(attributes: dict[str, Any]) -> tuple[str, ...]:
    """An image's diff_ids: the digest of each layer's bytes."""
    return tuple(str(layer) for layer in attributes["RootFS"]["Layers"])
