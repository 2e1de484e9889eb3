"""The sandbox's face on a machine where no Docker engine answers."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from assay.errors import PrerequisiteError


def engine() -> None:
    return None


def check(evaluator: str) -> NoReturn:
    raise PrerequisiteError("no Docker engine answers")


def build(evaluator: str, base: str = "auto") -> NoReturn:
    raise PrerequisiteError("no Docker engine answers")


def prepare_host(home: Path, evaluator: str) -> dict[str, str]:
    return {}
