"""The models' face over one toy model of a few bytes, pinned in models.lock like a real one."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from assay.digest import sha256_file
from assay.errors import VerificationError
from assay.paths import MODELS, ROOT


@dataclass(frozen=True)
class ModelPin:
    """A pinned model."""

    sha256: str


def entry(name: str) -> ModelPin:
    return ModelPin(tomllib.loads((ROOT / "models.lock").read_text())[name]["sha256"])


def verify(name: str) -> Path:
    path = MODELS / name / "model.gguf"
    if sha256_file(path) != entry(name).sha256:
        raise VerificationError(f"{path} is not the pinned model", "", f"assay model fetch {name}")
    return path


fetch = verify
