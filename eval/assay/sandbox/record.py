"""The sandbox image of an evaluator as a value, and its record in `.assay/sandbox/<evaluator>.json`.

The record of another pin set's image lies apart, below `.assay/pins/<set>/sandbox/`. What images are made of
(base, wheels) is named by its content and serves every set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from assay import pinset
from assay.digest import canonical_json
from assay.errors import PrerequisiteError, VerificationError
from assay.files import read_json, write_json_atomic
from assay.paths import OWNED, owned_directory, relative
from assay.sandbox.helper_images import Helper
from assay.sandbox.images import BaseKind

SANDBOX = OWNED / "sandbox"


class SandboxImage(BaseModel):
    """The image that an evaluator's containers start from.

    Attributes:
        evaluator: Whose programs it holds.
        reference: Its tag, which carries the digests of recipe and configuration: no other image has it.
        image_id: The engine's id of it.
        config_digest: Digest of its configuration.
        diff_ids: Digest of each layer's bytes.
        recipe_digest: Digest over everything that went in.
        base: Where its base came from.
        python: The interpreter that its programs run on.
        python_version: Major and minor version of it.
        programs: SHA-256 of each program inside, by name.
        helpers: Id of each image that the evaluator starts by a fixed tag, by that tag.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluator: str
    reference: str
    image_id: str
    config_digest: str
    diff_ids: tuple[str, ...]
    recipe_digest: str
    base: BaseKind
    python: str
    python_version: str
    programs: Mapping[str, str]
    helpers: Mapping[str, str]

    def describe(self) -> dict[str, Any]:
        """All that is recorded of the image as JSON values, for a run's provenance.

        Raises:
            VerificationError: the record is of another image by now.
        """
        record = read_record(self.evaluator)
        if record.image != self:
            raise VerificationError(
                f"{relative(place(self.evaluator))} is no longer of {self.image_id}",
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
        helpers: The images that the evaluator starts by fixed tags.
        engine: The engine and client at the time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/sandbox/v2"] = "assay/sandbox/v2"
    image: SandboxImage
    recipe: Mapping[str, str]
    manifest_digests: tuple[str, ...]
    base_image: str
    base_packages: Mapping[str, str]
    packages: Mapping[str, str]
    locks: Mapping[str, str]
    helpers: tuple[Helper, ...]
    engine: Mapping[str, str]


def folder() -> Path:
    """The sandbox's own directory; ConfigurationError when a link stands in its place."""
    return owned_directory(SANDBOX)


def place(evaluator: str) -> Path:
    """Where an evaluator's record is, under the pin set in force."""
    pins = pinset.current()
    home = SANDBOX if pins.directory is None else OWNED / "pins" / pins.name / "sandbox"
    return home / f"{evaluator}.json"


def write_record(record: Record) -> None:
    """Write the record with a digest over itself, atomically."""
    value = record.model_dump(mode="json")
    path = place(record.image.evaluator)
    owned_directory(path.parent)
    write_json_atomic(path, {**value, "digest": own_digest(value)})


def read_record(evaluator: str) -> Record:
    """The record of an evaluator's last build; nothing is made where there is none.

    Raises:
        ConfigurationError: a link stands where the sandbox's directory belongs.
        PrerequisiteError: there is no record.
        VerificationError: it was edited.
    """
    path = place(evaluator)
    again = f"eval/scripts/sandbox {evaluator}"
    if SANDBOX.is_symlink():
        folder()
    try:
        value = read_json(path)
    except FileNotFoundError:
        raise PrerequisiteError(f"the sandbox image of {evaluator} has not been built", "", again) from None
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
