"""A run as an auditor holds it: its files parsed once, each check reads from here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay import pinset
from assay.errors import VerificationError
from assay.files import read_json
from assay.paths import relative
from assay.plan import NAME, EntryPlan, Part, Plan, load_plan
from assay.record import dialects
from assay.record.episodes import TRACES, Episode, read_episodes
from assay.record.results import derive, load_summary, load_tasks
from assay.record.sample import Sample, TaskPlan
from assay.record.summary import Summary
from assay.run.state import State, load_state
from assay.signing.key import PublicKey

SUFFIX = re.compile(r"-(?P<digest>[0-9a-f]{8})$")


@dataclass(frozen=True)
class Recorded:
    """A run directory under audit; reading it raises VerificationError where a file of it is unfit.

    Attributes:
        run: The directory.
        key: The only key whose signature is believed; None where the auditor was given none.
    """

    run: Path
    key: PublicKey | None = None

    @property
    def provenance(self) -> Path:
        """The provenance folder."""
        return self.run / "provenance"

    @cached_property
    def before(self) -> Mapping[str, str]:
        """The frozen inputs before the first request."""
        return self.inputs("before")

    def inputs(self, when: str) -> Mapping[str, str]:
        """The frozen inputs "before", or "after-<entry>"."""
        value = self.json(self.provenance / f"inputs.{when}.json").get("inputs")
        if not isinstance(value, dict):
            raise VerificationError(f"provenance/inputs.{when}.json holds no inputs")
        return {str(name): str(digest) for name, digest in value.items()}

    def here(self) -> Mapping[str, str]:
        """Digests of this checkout's inputs that another check has computed already, by name."""
        return {}

    def pin(self, name: str) -> Path | None:
        """The run's copy of a lock, e.g. "datasets.lock", where the pin set in force has it; or None."""
        path = relative(pinset.current().file(name))
        return self.provenance / "pins" / path if f"file:{path}" in self.before else None

    def json(self, path: Path) -> dict[str, Any]:
        """A JSON object in a file of the run."""
        name = path.relative_to(self.run).as_posix()
        try:
            value = read_json(path)
        except FileNotFoundError:
            raise VerificationError(f"{name} is missing") from None
        except (OSError, ValueError, RecursionError) as error:
            raise VerificationError(f"{name} cannot be read", str(error)) from error
        if not isinstance(value, dict):
            raise VerificationError(f"{name} is not a JSON object")
        return value


@dataclass(frozen=True)
class Case(Recorded):
    """The run of a profile."""

    @cached_property
    def plan(self) -> Plan:
        """What the run says it did."""
        return load_plan(self.run / NAME)

    @cached_property
    def state(self) -> State:
        """How it ended."""
        return load_state(self.run)

    @cached_property
    def tasks(self) -> dict[str, TaskPlan]:
        """What each entry was to ask."""
        return load_tasks(self.run, self.plan)

    def as_recorded(self, tasks: TaskPlan) -> TaskPlan:
        """Tasks that a taskset describes, as the run's record tells them: the same."""
        return tasks

    @cached_property
    def summary(self) -> Summary:
        """What it printed."""
        return load_summary(self.run)

    @cached_property
    def derived(self) -> tuple[list[Sample], list[str]]:
        """Samples computed again from the native records, and what in those was not planned."""
        return derive(self.run, self.plan, self.tasks)

    def server(self, entry: str, when: str) -> dict[str, Any]:
        """What the server claimed "before" or "after" an entry."""
        return self.json(self.provenance / "server" / f"{entry}.{when}.json")

    @cached_property
    def declared(self) -> dict[str, Any]:
        """What the operator says of the server."""
        return self.json(self.provenance / "declared.json")

    def episodes(self, part: Part) -> Iterator[tuple[str, Episode]]:
        """The episodes of a native invocation and where each stands; none where the dialect has none."""
        path = self.run / part.folder / TRACES
        for episode in read_episodes(path):
            yield f"{part.folder}/{TRACES} line {episode.line}", episode

    def finished(self, entry: EntryPlan) -> int:
        """Rows in the native records of an entry."""
        reader = dialects.of(self.plan.dialect)
        return sum(1 for part in entry.parts for _ in reader.rows(self.run / part.folder))

    def launch(self, part: Part, name: str) -> dict[str, Any]:
        """What was recorded of an invocation's launch, e.g. "command.json"."""
        return self.json(self.provenance / "launch" / part.folder / name)
