"""The models' face over one toy model of a few bytes, pinned in models.lock by the real form and reader."""

from __future__ import annotations

from pathlib import Path

from assay.digest import sha256_file
from assay.errors import VerificationError
from assay.models.pins import ModelPin, entry, pins

__all__ = ["ModelPin", "entry", "fetch", "pins", "verify"]


def verify(name: str) -> Path:
    pin = entry(name)
    if sha256_file(pin.path) != pin.sha256:
        raise VerificationError(f"{pin.path} is not the pinned model", "", f"assay model fetch {name}")
    return pin.path


fetch = verify
