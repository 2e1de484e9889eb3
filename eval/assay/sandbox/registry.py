"""Getting a pinned image from a registry: by the digest of its manifest, and by nothing else.

The engine's own pull does the work and checks every digest on the way. The name that an image has at its home
is kept in a mirror (`--registry HOST[/PREFIX]` or `ASSAY_REGISTRY`): official images lie below `library/`, as
`docker pull` looks for them. What a mirror gives under the right digest is right, whoever runs it.
"""

from __future__ import annotations

import os
import re
from typing import Any

from docker import DockerClient

from assay.console import step
from assay.errors import AssayError, ConfigurationError, PrerequisiteError, VerificationError
from assay.sandbox.engine import FAILURES, WORK_WITHIN_S, connect
from assay.sandbox.load import inspect

VARIABLE = "ASSAY_REGISTRY"
REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?(/[a-z0-9]+([._-][a-z0-9]+)*)*")
ANSWERS_WITHIN_S = 15
OTHER_BYTES = ("verification failed", "does not match", "unexpected commit digest", "content digest")
NOT_ALLOWED = ("credentials", "unauthorized", "authentication", "denied", "forbidden")


def choose_registry(given: str | None) -> str | None:
    """Where images are asked for: the option before the variable; None for the engine's own registry.

    Raises:
        ConfigurationError: it is not of the form HOST[:PORT][/PREFIX].
    """
    chosen = given or os.environ.get(VARIABLE) or None
    if chosen is not None and REGISTRY.fullmatch(chosen) is None:
        raise ConfigurationError(
            f"{chosen!r} names no registry",
            "it is HOST[:PORT][/PREFIX], without a scheme",
            "assay sandbox --registry mirror.example:5000",
        )
    return chosen


def place(reference: str, registry: str | None) -> str:
    """The name under which "python:3.12-slim@sha256:…" and the like are asked for, without tag and digest."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.partition(':')[0]}"
    if registry is None:
        return name
    return f"{registry}/{name if slash else f'library/{name}'}"


def obtain(client: DockerClient, reference: str, manifest: str, registry: str | None) -> dict[str, Any]:
    """What the engine says of the image with that manifest, pulled first if need be.

    Args:
        client: The engine that gets it.
        reference: Its name at home; a tag in it is not asked for.
        manifest: Digest of its manifest, "sha256:" included.
        registry: Where it is asked for.

    Raises:
        PrerequisiteError: no registry answers, it does not have the image, or wants to know who asks.
        VerificationError: it gives other bytes than the digest names.
    """
    name = place(reference, registry)
    found = inspect(client, f"{name}@{manifest}")
    if found is not None:
        return found
    try:
        with connect(ANSWERS_WITHIN_S) as brief:
            brief.images.get_registry_data(f"{name}@{manifest}")
        with step(f"image {name}@{manifest}"), connect(WORK_WITHIN_S) as patient:
            for event in patient.api.pull(name, tag=manifest, stream=True, decode=True):
                if "error" in event:
                    raise refused(reference, name, manifest, str(event["error"]))
        found = inspect(client, f"{name}@{manifest}")
    except FAILURES as error:
        raise refused(reference, name, manifest, reason(error)) from error
    if found is None:
        raise refused(reference, name, manifest, "the engine pulled it and has it not")
    return found


def refused(reference: str, name: str, manifest: str, why: str) -> AssayError:
    """The error for an image that could not be had, by what the engine said of it."""
    said = why.lower()
    if any(words in said for words in OTHER_BYTES):
        return VerificationError(
            f"{name} does not hold what {manifest} names", why, "assay sandbox --registry ANOTHER_HOST"
        )
    if any(words in said for words in NOT_ALLOWED):
        return PrerequisiteError(
            f"the registry does not give {name}@{manifest} to everybody",
            why,
            f"docker login {name.partition('/')[0]}" if "/" in name else "docker login",
        )
    return PrerequisiteError(
        f"no registry gives {reference}",
        f"asked for {name}@{manifest}: {why}",
        "assay sandbox --registry HOST[/PREFIX] names a mirror that has it",
    )


def reason(error: BaseException) -> str:
    """What the engine said, without the request around it."""
    said = str(getattr(error, "explanation", None) or error).strip()
    return said.splitlines()[0] if said else repr(error)
