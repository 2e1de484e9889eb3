"""`export.json`: what of a run was published as it was, what in a form without texts, and what was left out.

It is written last, as a manifest is. The run's own `manifest.json`, and the statement that signs it, are
among the files that stay as they were, so whoever holds the export can hold each of those against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.errors import VerificationError
from assay.files import OLDER, other_form, read_json

NAME = "export.json"
CRATE = "ro-crate-metadata.json"
STATEMENT = "statement.dsse.json"
SCHEMA: Literal["assay/export/v1"] = "assay/export/v1"
RUN_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$"
DIGEST = r"^[0-9a-f]{64}$"


class Derived(BaseModel):
    """A file without its texts.

    Attributes:
        sha256: Of the file as it stands in the export.
        original: Of the run's own, as its manifest has it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern=DIGEST)
    original: str = Field(pattern=DIGEST)


class Contents(BaseModel):
    """The whole of `export.json`.

    Attributes:
        schema_version: Of this form.
        assay: Version of the program that wrote it.
        run: The run directory's name.
        kind: Whether it is the run of a profile or of a suite.
        kept: Files as they were: SHA-256 by path.
        derived: Files without their texts, by path.
        omitted: What was left out: SHA-256 by path, or `link:` and what a link names, as the manifest has it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/export/v1"] = SCHEMA
    assay: str
    run: str = Field(pattern=RUN_NAME)
    kind: Literal["profile", "suite"]
    kept: Mapping[str, str]
    derived: Mapping[str, Derived]
    omitted: Mapping[str, str]

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file that it publishes, by path."""
        return {**self.kept, **{path: each.sha256 for path, each in self.derived.items()}}


def is_export(run: Path) -> bool:
    """Whether a directory holds the published form of a run."""
    return (run / NAME).is_file()


def load(run: Path) -> Contents:
    """What an export says of itself; VerificationError when it cannot be read."""
    path = run / NAME
    try:
        value = read_json(path)
        if other := other_form(value, SCHEMA):
            raise VerificationError(f"{path} is of the form {other}", f"this version reads {SCHEMA}", OLDER)
        return Contents.model_validate(value)
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise VerificationError(
            f"{path} cannot be read", str(error).splitlines()[0], "fetch the export again"
        ) from error
