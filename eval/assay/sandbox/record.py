"""The sandbox image as a value, and its record in `.assay/sandbox/image.json`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.digest import canonical_json
from assay.errors import PrerequisiteError, VerificationError
from assay.files import read_json, write_json_atomic
from assay.paths import OWNED, owned_directory, relative
from assay.sandbox.images import BaseKind

REFERENCE = "localhost/assay-sandbox:current"
SANDBOX = OWNED / "sandbox"


class SandboxImage(BaseModel):
    """The image that containers start from.

    Attributes:
        reference: Its tag.
        image_id: The engine's id of it.
        config_digest: Digest of its configuration.
        diff_ids: Digest of each layer's bytes.
        recipe_digest: Digest over everything that went in.
        base: Where its base came from.
        programs: SHA-256 of each program inside, by name.
        network_image_id: Id of the image that cuts a container's egress.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reference: str
    image_id: str
    config_digest: str
    diff_ids: tuple[str, ...]
    recipe_digest: str
    base: BaseKind
    programs: Mapping[str, str]
    network_image_id: str

    def describe(self) -> dict[str, Any]:
        """All that is recorded of the image as JSON values, for a run's provenance.

        Raises:
            VerificationError: the record is of another image by now.
        """
        record = read_record()
        if record.image != self:
            raise VerificationError(
                f"{relative(SANDBOX / 'image.json')} is no longer of {self.image_id}",
                "the image was built again meanwhile",
                "run again",
            )
        return record.model_dump(mode="json")


class Record(BaseModel):
    """What is kept of a build.

    Attributes:
        image: The image.
        recipe: What went in, by name.
        manifest_digests: Where the engine knows the image by a manifest, its digests; else empty.
        base_image: What the Dockerfile built on.
        base_packages: For a base from Debian packages, each .deb's SHA-256 by its file name.
        packages: Every Debian package inside, by name, with its version.
        locks: SHA-256 of each program's native lock, by name.
        network_ours: Whether the network image is the one built here.
        engine: The engine and client at the time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/sandbox/v1"] = "assay/sandbox/v1"
    image: SandboxImage
    recipe: Mapping[str, str]
    manifest_digests: tuple[str, ...]
    base_image: str
    base_packages: Mapping[str, str]
    packages: Mapping[str, str]
    locks: Mapping[str, str]
    network_ours: bool
    engine: Mapping[str, str]


def folder() -> Path:
    """The sandbox's own directory; ConfigurationError when a link stands in its place."""
    return owned_directory(SANDBOX)


def write_record(record: Record) -> None:
    """Write the record with a digest over itself, atomically."""
    value = record.model_dump(mode="json")
    write_json_atomic(folder() / "image.json", {**value, "digest": own_digest(value)})


def read_record() -> Record:
    """The record of the last build; nothing is made where there is none.

    Raises:
        ConfigurationError: a link stands where the sandbox's directory belongs.
        PrerequisiteError: there is no record.
        VerificationError: it was edited.
    """
    path = SANDBOX / "image.json"
    again = "eval/scripts/sandbox"
    if SANDBOX.is_symlink():
        folder()
    try:
        value = read_json(path)
    except FileNotFoundError:
        raise PrerequisiteError("the sandbox image has not been built", "", again) from None
    except (OSError, ValueError) as error:
        raise VerificationError(f"{relative(path)} cannot be read", str(error), again) from error
    digest = value.pop("digest", None) if isinstance(value, dict) else None
    try:
        record = Record.model_validate(value)
    except ValidationError as error:
        raise VerificationError(f"{relative(path)} is not a record of a build", str(error), again) from error
    if digest != own_digest(value):
        raise VerificationError(
            f"{relative(path)} was changed since the build wrote it", "its digest does not match", again
        )
    return record


def own_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 over the record's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
