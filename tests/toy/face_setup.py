"""Set-up's face over the toy environment: its digest is that of the toy evaluator's programs."""

from __future__ import annotations

from dataclasses import dataclass

from assay.digest import combined_digest, tree_digests
from assay.paths import EVALUATORS

ENVIRONMENTS = {"assay": "assay", "toy": "toy", "routed": "routed"}


@dataclass(frozen=True)
class EnvironmentState:
    """What is installed, by digest."""

    digest: str


def ensure(environment: str) -> EnvironmentState:
    return check(environment)


def check(environment: str) -> EnvironmentState:
    return EnvironmentState(combined_digest(tree_digests(EVALUATORS / "toy" / ".venv")))


def installed_uv() -> None:
    """The toy needs none."""


def require(environment: str) -> None:
    """The toy environment is always whole."""
