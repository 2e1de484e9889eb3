"""What the operator declares of the server: a recipe's id, and the files of the model that is served.

It is the operator's word, recorded as that. Where the server itself claims the digest of its model file, the
two must agree.
"""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay.digest import sha256_bytes
from assay.errors import ConfigurationError, VerificationError
from assay.plan import OtherServer, OwnServer
from assay.profile import describe
from assay.run.container import VARIABLE as CONTAINER_VARIABLE

RECIPE_VARIABLE = "QWEN_RECIPE_ID"
RECIPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,199}")
MAXIMUM_BYTES = 4 << 20
SCHEMA = "assay/declared/v1"


class ServedFile(BaseModel):
    """One file of a served model.

    Attributes:
        path: Relative to the model's folder, with forward slashes.
        size_bytes: Its size.
        sha256: Its digest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    path: str = Field(pattern=r"^[^/\\\x00-\x1f]+(/[^/\\\x00-\x1f]+)*$", max_length=1024)
    size_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _stays_inside(self) -> Self:
        if {".", ".."} & set(self.path.split("/")):
            raise ValueError(f"{self.path!r} leads out of the model's folder")
        return self


class ServedModel(BaseModel):
    """A served model, file by file; the form of `--model-manifest`.

    Attributes:
        schema_version: Of this form.
        model: The name that the server is asked for.
        source: Where the files come from, in words.
        revision: Which version of the source.
        file: Every file that the server loads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/served-model/v1"]
    model: str = Field(min_length=1, max_length=1024)
    source: str | None = None
    revision: str | None = None
    file: tuple[ServedFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        paths = [each.path for each in self.file]
        if len(set(paths)) != len(paths):
            raise ValueError("a file stands twice")
        return self


@dataclass(frozen=True)
class Declared:
    """The operator's word.

    Attributes:
        recipe_id: What he calls the recipe that is served, None when he does not say.
        served: The files of the model, None when he does not say.
        sha256: Digest of the manifest's own bytes, None without one.
        container: The name or id of the server's container, None to look for it.
    """

    recipe_id: str | None = None
    served: ServedModel | None = None
    sha256: str | None = None
    container: str | None = None

    def describe(self) -> dict[str, Any]:
        """What is recorded."""
        return {
            "schema_version": SCHEMA,
            "source": "the operator's word",
            "recipe_id": self.recipe_id,
            "model_manifest": None if self.served is None else self.served.model_dump(mode="json"),
            "model_manifest_sha256": self.sha256,
        }

    def check(self, server: OwnServer | OtherServer) -> None:
        """Hold the manifest against what a plan asks.

        Raises:
            ConfigurationError: it is of another model, or the run serves a model of its own.
        """
        if self.served is None:
            return
        if isinstance(server, OwnServer):
            raise ConfigurationError(
                "--model-manifest does not belong to this run",
                f"it serves {server.model} itself, whose file models.lock pins",
                "leave it out, or name a server that is already there: --base-url URL --model NAME",
            )
        if self.served.model != server.model:
            raise ConfigurationError(
                f"the model manifest is of {self.served.model!r}",
                f"the server is asked for {server.model!r}",
                "give the manifest of the model that is asked for",
            )

    def agree(self, claimed: Mapping[str, Any] | None) -> None:
        """Hold the manifest against what a server claims to have loaded.

        Raises:
            VerificationError: the server claims a model file that the manifest does not have.
        """
        if fault := contradiction(self.describe(), claimed):
            raise VerificationError(
                "the served model is not the one that was declared",
                fault,
                "give the manifest of what is served",
            )


def contradiction(declared: Mapping[str, Any], claimed: Mapping[str, Any] | None) -> str | None:
    """How a recorded declaration and a server's claim contradict each other; None when they do not."""
    manifest = declared.get("model_manifest")
    digest = ((claimed or {}).get("model") or {}).get("file_sha256")
    if not isinstance(manifest, Mapping) or digest is None:
        return None
    if digest in {each.get("sha256") for each in manifest.get("file") or ()}:
        return None
    return f"the server claims a model file with the digest {digest}, which the model manifest does not have"


def read_declared(manifest: Path | None, variables: Mapping[str, str]) -> Declared:
    """Read what the operator declares.

    Args:
        manifest: The file of `--model-manifest`, TOML or JSON by its suffix.
        variables: The environment.

    Raises:
        ConfigurationError: the recipe's id or the manifest is not of its form.
    """
    recipe = variables.get(RECIPE_VARIABLE) or None
    if recipe is not None and RECIPE.fullmatch(recipe) is None:
        raise ConfigurationError(
            f"{RECIPE_VARIABLE} cannot be used",
            "it is not 1 to 200 letters, digits and ._:/@+=- that begin with a letter or digit",
            f"export {RECIPE_VARIABLE}=NAME, or unset it",
        )
    container = variables.get(CONTAINER_VARIABLE) or None
    if manifest is None:
        return Declared(recipe, container=container)
    data = _read(manifest)
    try:
        value = tomllib.loads(data.decode()) if manifest.suffix == ".toml" else json.loads(data)
        served = ServedModel.model_validate(value)
    except ValidationError as error:
        raise _refused(manifest, describe(error, ServedModel, ServedFile)) from error
    except (ValueError, RecursionError) as error:
        raise _refused(manifest, f"{error}") from error
    return Declared(recipe, served, sha256_bytes(data), container)


def _read(path: Path) -> bytes:
    if path.suffix not in (".toml", ".json"):
        raise _refused(path, "its name ends neither in .toml nor in .json")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refused(path, "it is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise _refused(path, f"{error.strerror}") from error
    if len(data) > MAXIMUM_BYTES:
        raise _refused(path, f"it is longer than {MAXIMUM_BYTES} bytes")
    return data


def _refused(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the model manifest {path} cannot be used", why, "see the form in docs/formats.md, served models"
    )
