"""Set-up's face over the toy environment: its digest is that of the toy evaluator's programs."""

from __future__ import annotations

from dataclasses import dataclass

from assay.digest import combined_digest, tree_digests
from assay.errors import PrerequisiteError
from assay.paths import EVALUATORS

ENVIRONMENTS = {"assay": "assay", "toy": "toy", "routed": "routed"}


@dataclass(frozen=True)
class EnvironmentState:
    """What is installed, by digest."""

    digest: str


def ensure(environment: str) -> EnvironmentState:
    return check(environment)


def check(environment: str) -> EnvironmentState:
    made = EVALUATORS / "toy" / ".venv"
    if not made.is_dir():
        raise PrerequisiteError(f"the environment {environment} is not there")
    return EnvironmentState(combined_digest(tree_digests(made)))


def installed_uv() -> None:
    """The toy needs none."""


def require(environment: str) -> None:
    """The toy environment is always whole."""
