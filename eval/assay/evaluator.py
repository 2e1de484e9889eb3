"""An evaluator as Assay sees it: a locked environment and a command, described by `evaluator.toml`.

The core never imports one; everything it must know to drive it stands in that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.errors import ConfigurationError
from assay.paths import EVALUATORS, relative
from assay.profile import describe, read_toml


class DockerLimits(BaseModel):
    """The limits of each container.

    Attributes:
        workdir: Working directory inside it.
        cpu: Processors.
        memory: Gigabytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workdir: str
    cpu: float = Field(gt=0)
    memory: float = Field(gt=0)


class Evaluator(BaseModel):
    """The whole of `evaluator.toml`, as far as driving it needs.

    Attributes:
        name: Its folder's name.
        version: Of the evaluator.
        dialect: How its command is spoken to, and what its records mean.
        command: In the environment's bin.
        tasksets: Folders in `eval/tasksets/` that are installed editable.
        environment: Variables the native command gets.
        docker: Limits of each container.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    version: str
    dialect: Literal["vf-eval"]
    command: str
    tasksets: tuple[str, ...]
    environment: Mapping[str, str]
    docker: DockerLimits

    @property
    def home(self) -> Path:
        """Its folder."""
        return EVALUATORS / self.name

    @property
    def binaries(self) -> Path:
        """Where its environment's programs are."""
        return self.home / ".venv" / "bin"


def load_evaluator(name: str) -> Evaluator:
    """The evaluator of that name; ConfigurationError when there is none or its file is not valid."""
    path = EVALUATORS / name / "evaluator.toml"
    try:
        return Evaluator.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigurationError(
            f"{relative(path)} is not valid", describe(error), f"edit {relative(path)}"
        ) from error
