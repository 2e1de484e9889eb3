"""What every dialect can say, and the value that says what one native invocation is to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay.evaluator import DockerLimits, Evaluator
from assay.profile import RuntimeKind

SHARED = "local.toml"
ENTRY = "entry.toml"
OVERRIDES = "overrides.json"
# What OpenAI's requests have a field for; anything else of an engine goes beside them.
FIELDS = frozenset(
    {
        "temperature",
        "top_p",
        "max_tokens",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "stop",
        "reasoning_effort",
    }
)


@dataclass(frozen=True)
class Launch:
    """One native invocation: what differs from machine to machine and run to run.

    Attributes:
        base_url: Where the server listens.
        model: The name asked for.
        key_variable: The environment variable that holds the endpoint's key.
        runtime: Where rollouts run.
        image: The sandbox image's id; None outside Docker.
        docker: Limits of each container.
        output: The run directory.
        folder: Where in it the evaluator writes.
        run_name: The run's name, which labels containers too.
        max_concurrent: Rollouts in flight.
        seed: The seed of every request, where the invocation is one of several of an entry.
        routed: Native options that lead the taskset to its pinned data.
    """

    base_url: str
    model: str
    key_variable: str
    runtime: RuntimeKind
    image: str | None
    docker: DockerLimits
    output: Path
    folder: str
    run_name: str
    max_concurrent: int
    seed: int | None = None
    routed: Mapping[str, Any] = field(default_factory=dict)


class Dialect(Protocol):
    """How an evaluator's command is spoken to."""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that the command is given, in the order of its words."""

    def native(self, shared: str, entry: str) -> dict[str, Any]:
        """The configuration that the launch files alone give.

        Args:
            shared: Text of the part that entries share.
            entry: Text of the entry's own part.

        Raises:
            ValueError: a text is no TOML, or not of this dialect's form.
        """

    def taskset(self, native: Mapping[str, Any]) -> str:
        """The taskset's id; ValueError when the configuration names none."""

    def tasks(self, native: Mapping[str, Any]) -> int | None:
        """How many tasks are asked for; None for all that the taskset has."""

    def rollouts(self, native: Mapping[str, Any]) -> int | None:
        """Rollouts of each task, None where nothing is said."""

    def concurrent(self, native: Mapping[str, Any]) -> int | None:
        """Rollouts in flight, None where nothing is said."""

    def first(self, tasks: int) -> dict[str, Any]:
        """The native option that asks for the first so many tasks."""

    def sampling(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Sampling options, by OpenAI's and the engines' own names, as native ones."""

    def base_url(self, native: Mapping[str, Any]) -> str | None:
        """The endpoint that the configuration names itself."""

    def run_directory(self, output_dir: Path, folder: str) -> Path:
        """The run directory, from the native option for where output goes and a part's folder."""

    def overrides(self, launch: Launch) -> dict[str, Any]:
        """The last layer of the configuration: exactly what the launch says."""

    def write(self, folder: Path, texts: Mapping[str, str], over: Mapping[str, Any]) -> list[Path]:
        """Write launch files and overrides into a folder and return what the command is given.

        Raises:
            ValueError: see `native`.
        """

    def command(self, program: Path, files: Sequence[Path]) -> list[str]:
        """The native command line over these files."""

    def dry_run(self, evaluator: Evaluator, files: Sequence[Path]) -> list[str]:
        """The command line that resolves and validates these files natively and asks nothing."""


def sampled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling options as Verifiers takes them: `extra_body` holds what OpenAI does not name."""
    given = {name: value for name, value in options.items() if name in FIELDS}
    beside = {name: value for name, value in options.items() if name not in FIELDS and name != "extra_body"}
    body = {**beside, **options.get("extra_body", {})}
    return {**given, "extra_body": body} if body else given
