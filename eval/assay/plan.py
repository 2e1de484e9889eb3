"""A plan: the whole effective configuration of a run, as one value, without secrets.

It is built from the profile's files and the command's options, saved as `resolved.json`, and can be run
again as it stands (`eval/scripts/run RUN/resolved.json`): the launch files' text is part of it. Where the
server listens and where output goes differ from run to run and stand in the launch overrides instead.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from assay import pinset
from assay.digest import value_digest
from assay.errors import ConfigurationError
from assay.evaluator import DockerLimits, load_evaluator
from assay.files import read_json
from assay.profile import SEGMENT, Profile, RuntimeKind, choose_entries, describe, merge, read_toml

NAME = "resolved.json"
LAUNCH_FILES = ("local.toml", "entry.toml")

Egress = Literal["cut", "not enforced"]
EGRESS: Mapping[RuntimeKind, Egress] = {"docker": "cut", "subprocess": "not enforced"}


class OwnServer(BaseModel):
    """The server that a run starts and stops itself.

    Attributes:
        model: Name in `models.lock`.
        slots: Requests it answers at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["own"] = "own"
    model: str
    slots: int = Field(gt=0)


class OtherServer(BaseModel):
    """A server that is already there, which a run neither starts nor stops.

    Attributes:
        base_url: Ends in `/v1`.
        model: The name asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["other"] = "other"
    base_url: str
    model: str


@dataclass(frozen=True)
class Part:
    """One native invocation of an entry.

    Attributes:
        folder: Where it writes, relative to the run directory.
        first: Number of the first rollout it yields.
        rollouts: Rollouts of each task that it yields.
        seed: The seed of its requests, None where none is given.
    """

    folder: str
    first: int
    rollouts: int
    seed: int | None


class EntryPlan(BaseModel):
    """One entry.

    Attributes:
        name: The entry.
        tasks: Tasks it must yield.
        rollouts: Rollouts of each.
        launch: Text of `local.toml` and `entry.toml`, which go to the evaluator as they are.
        max_concurrent: Rollouts in flight.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=SEGMENT)
    tasks: int = Field(gt=0)
    rollouts: int = Field(gt=0)
    launch: Mapping[str, str]
    max_concurrent: int = Field(gt=0)

    @model_validator(mode="after")
    def _launches(self) -> Self:
        if set(self.launch) != set(LAUNCH_FILES):
            raise ValueError(f"launch holds {sorted(self.launch)}, expected {sorted(LAUNCH_FILES)}")
        _ = self.taskset
        return self

    @property
    def planned(self) -> int:
        """Rows it must yield."""
        return self.tasks * self.rollouts

    @property
    def parts(self) -> tuple[Part, ...]:
        """The native invocations it takes, in their order."""
        return (Part(self.name, 0, self.rollouts, None),)

    @property
    def native(self) -> dict[str, Any]:
        """The evaluator's configuration as the launch files alone give it."""
        layers = [tomllib.loads(self.launch[name]) for name in LAUNCH_FILES]
        return merge(*layers)

    @property
    def taskset(self) -> str:
        """The taskset's module as the entry names it; ValueError when it names none."""
        try:
            return str(self.native["env"]["taskset"]["id"])
        except (KeyError, TypeError):
            raise ValueError(f"entry {self.name} names no env.taskset.id") from None


class Plan(BaseModel):
    """What a run does.

    Attributes:
        schema_version: Of this form.
        profile: The profile's name.
        description: What the profile is.
        evaluator: The locked environment that asks and scores.
        runtime: Where rollouts run.
        egress: Whether a rollout's network is cut, or not.
        image: The sandbox image's id; None on the host runtime.
        docker: Limits of each container.
        server: Whose answers are scored.
        entries: In the order they run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/resolved/v1"] = "assay/resolved/v1"
    profile: str = Field(pattern=SEGMENT)
    description: str
    evaluator: str = Field(pattern=SEGMENT)
    runtime: RuntimeKind
    egress: Egress
    image: str | None
    docker: DockerLimits
    server: OwnServer | OtherServer = Field(discriminator="kind")
    entries: tuple[EntryPlan, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.egress != EGRESS[self.runtime]:
            raise ValueError(
                f"egress is {self.egress!r}, and on {self.runtime} it is {EGRESS[self.runtime]!r}"
            )
        if (self.image is not None) != (self.runtime == "docker"):
            raise ValueError(f"image is {self.image!r} on the {self.runtime} runtime")
        if len({entry.name for entry in self.entries}) != len(self.entries):
            raise ValueError("two entries have one name")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 over the plan's canonical JSON."""
        return value_digest(self.model_dump(mode="json"))

    @property
    def planned(self) -> int:
        """Rows the run must yield."""
        return sum(entry.planned for entry in self.entries)


def make_plan(
    profile: Profile,
    entry: str | None,
    runtime: RuntimeKind,
    image: str | None,
    server: OtherServer | None,
    max_concurrent: int | None,
    configs: Path | None = None,
) -> Plan:
    """Build the plan of a profile.

    Args:
        profile: Assay's facts about it.
        entry: One of its entries, or None for all.
        runtime: Where rollouts run; must be one the profile allows.
        image: The sandbox image's id, for Docker.
        server: A server that is already there; None to start the profile's own.
        max_concurrent: Rollouts in flight; None for what the entry says.
        configs: Where the launch files are; the pin set's when None.

    Raises:
        ConfigurationError: a launch file is missing or wrong, the entry is unknown, the runtime is not
            allowed, or the profile has no server of its own and none was given.
    """
    if runtime not in profile.runtimes:
        raise runtime_refused(profile, runtime)
    configs = configs or pinset.current().configs
    entries = []
    for facts in choose_entries(profile, entry):
        paths = {
            "local.toml": configs / "local.toml",
            "entry.toml": configs / profile.name / f"{facts.name}.toml",
        }
        native = merge(*(read_toml(path) for path in paths.values()))
        if native.get("num_rollouts") != facts.rollouts:
            raise ConfigurationError(
                f'entry "{facts.name}" of profile "{profile.name}" contradicts profiles.toml',
                f"num_rollouts is {native.get('num_rollouts')}, expected {facts.rollouts}",
                "make the two files agree",
            )
        entries.append(
            EntryPlan(
                name=facts.name,
                tasks=facts.tasks,
                rollouts=facts.rollouts,
                launch={file: path.read_text("utf-8") for file, path in paths.items()},
                max_concurrent=max_concurrent or int(native.get("max_concurrent") or 1),
            )
        )
    if server is None and profile.serve is None:
        raise ConfigurationError(
            f'profile "{profile.name}" has no server of its own', "", "give one: --base-url URL --model NAME"
        )
    slots = max(planned.max_concurrent for planned in entries)
    return Plan(
        profile=profile.name,
        description=profile.description,
        evaluator=profile.evaluator,
        runtime=runtime,
        egress=EGRESS[runtime],
        image=image,
        docker=load_evaluator(profile.evaluator).docker,
        server=server or OwnServer(model=str(profile.serve), slots=slots),
        entries=tuple(entries),
    )


def runtime_refused(profile: Profile, runtime: RuntimeKind) -> ConfigurationError:
    """The error for a runtime that the profile does not allow."""
    return ConfigurationError(
        f'profile "{profile.name}" does not run on the {runtime} runtime',
        f"it allows: {', '.join(profile.runtimes)}; model-written code must not run on the host",
        "start a Docker engine (apt-get install docker.io), then: eval/scripts/sandbox",
    )


def load_plan(path: Path) -> Plan:
    """The plan in a `resolved.json`; ConfigurationError when there is none."""
    try:
        return Plan.model_validate(read_json(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = describe(error) if isinstance(error, ValidationError) else str(error)
        raise ConfigurationError(f"{path} is not a resolved run", reason, "name a profile instead") from error


def overrides(
    plan: Plan, entry: EntryPlan, base_url: str, model: str, output: Path, run_name: str
) -> dict[str, Any]:
    """The last layer of the evaluator's configuration: what differs from machine to machine and run to run.

    Args:
        plan: The plan.
        entry: The entry.
        base_url: Where the server listens.
        model: The name asked for.
        output: The run directory; the evaluator writes into a folder of the entry's name in it.
        run_name: The run's name, which labels containers too.
    """
    runtime: dict[str, Any] = {"type": plan.runtime}
    if plan.runtime == "docker":
        runtime |= {"image": plan.image, "allow": [], **plan.docker.model_dump()}
    return {
        "model": model,
        "max_concurrent": entry.max_concurrent,
        "output_dir": str(output),
        "push": False,
        "run": {"name": run_name, "dir": entry.name},
        "client": {"base_url": base_url, "api_key_var": load_evaluator(plan.evaluator).key_variable},
        "env": {"agent": {"runtime": runtime}},
    }
