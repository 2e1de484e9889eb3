"""A plan: the whole effective configuration of a run, as one value, without secrets.

It is built from the profile's files and the command's options, saved as `resolved.json`, and can be run
again as it stands (`eval/scripts/run RUN/resolved.json`): the launch files' text is part of it. Where the
server listens and where output goes differ from run to run and stand in the launch overrides instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from assay import dialect
from assay.dialect.base import ENTRY, SHARED, Launch
from assay.digest import value_digest
from assay.errors import ConfigurationError
from assay.evaluator import Dialect as DialectName
from assay.evaluator import DockerLimits
from assay.files import OLDER, other_form, read_json
from assay.profile import SEGMENT, RuntimeKind, describe, merge

NAME = "resolved.json"
SCHEMA: Literal["assay/resolved/v2"] = "assay/resolved/v2"
LAUNCH_FILES = (SHARED, ENTRY)

Egress = Literal["cut", "not enforced"]
EGRESS: Mapping[RuntimeKind, Egress] = {
    "docker": "cut",
    "subprocess": "not enforced",
    "none": "not enforced",
}


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
        seeds: Each rollout's seed, where it has one: the evaluator is then started once for each.
        launch: Text of `local.toml` and `entry.toml`, which go to the evaluator as they are.
        max_concurrent: Rollouts in flight.
        over: Native options that whoever asked laid over the launch files: fewer tasks, other sampling.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=SEGMENT)
    tasks: int = Field(gt=0)
    rollouts: int = Field(gt=0)
    seeds: tuple[int, ...] = ()
    launch: Mapping[str, str]
    max_concurrent: int = Field(gt=0)
    over: Mapping[str, Any] = {}

    @model_serializer(mode="wrap")
    def _as_it_was(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # An entry that is asked as its files say has the form, and so the digest, that it always had.
        found: dict[str, Any] = serialise(self)
        if not self.over:
            found.pop("over", None)
        return found

    @model_validator(mode="after")
    def _launches(self) -> Self:
        if set(self.launch) != set(LAUNCH_FILES):
            raise ValueError(f"launch holds {sorted(self.launch)}, expected {sorted(LAUNCH_FILES)}")
        if self.seeds and (len(self.seeds) != self.rollouts or len(set(self.seeds)) != self.rollouts):
            raise ValueError(f"{len(set(self.seeds))} seeds for {self.rollouts} rollouts of {self.name}")
        return self

    @property
    def planned(self) -> int:
        """Rows it must yield."""
        return self.tasks * self.rollouts

    @property
    def parts(self) -> tuple[Part, ...]:
        """The native invocations it takes, in their order."""
        if not self.seeds:
            return (Part(self.name, 0, self.rollouts, None),)
        return tuple(
            Part(f"{self.name}/seed-{seed}", number, 1, seed) for number, seed in enumerate(self.seeds)
        )


class Plan(BaseModel):
    """What a run does.

    Attributes:
        schema_version: Of this form.
        profile: The profile's name.
        description: What the profile is.
        pins: The pin set that everything below is taken from.
        evaluator: The locked environment that asks and scores.
        dialect: How its command is spoken to, and what its records mean.
        key_variable: The variable that holds the endpoint's key for it.
        runtime: Where rollouts run.
        egress: Whether a rollout's network is cut, or not.
        image: The sandbox image's id; None outside Docker.
        docker: Limits of each container.
        server: Whose answers are scored.
        entries: In the order they run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["assay/resolved/v2"] = SCHEMA
    profile: str = Field(pattern=SEGMENT)
    description: str
    pins: str = Field(pattern=SEGMENT)
    evaluator: str = Field(pattern=SEGMENT)
    dialect: DialectName
    key_variable: str = Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}_KEY$")
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
        for entry in self.entries:
            try:
                self.taskset(entry)
            except ValueError as error:
                raise ValueError(f"entry {entry.name}: {error}") from None
        return self

    @property
    def digest(self) -> str:
        """SHA-256 over the plan's canonical JSON."""
        return value_digest(self.model_dump(mode="json"))

    @property
    def planned(self) -> int:
        """Rows the run must yield."""
        return sum(entry.planned for entry in self.entries)

    def native(self, entry: EntryPlan) -> dict[str, Any]:
        """The evaluator's configuration as an entry's launch files give it, and what was laid over them."""
        return merge(dialect.of(self.dialect).native(entry.launch[SHARED], entry.launch[ENTRY]), entry.over)

    def taskset(self, entry: EntryPlan) -> str:
        """The taskset as an entry names it."""
        return dialect.of(self.dialect).taskset(self.native(entry))


def load_plan(path: Path) -> Plan:
    """The plan in a `resolved.json`; ConfigurationError when there is none, or it is of another form."""
    try:
        value = read_json(path)
        if other := other_form(value, SCHEMA):
            raise ConfigurationError(f"{path} is of the form {other}", f"this version reads {SCHEMA}", OLDER)
        return Plan.model_validate(value)
    except (OSError, ValueError, RecursionError) as error:
        reason = describe(error) if isinstance(error, ValidationError) else str(error)
        raise ConfigurationError(f"{path} is not a resolved run", reason, "name a profile instead") from error


def overrides(
    plan: Plan,
    entry: EntryPlan,
    part: Part,
    base_url: str,
    model: str,
    output: Path,
    run_name: str,
    routed: Mapping[str, Any],
) -> dict[str, Any]:
    """The last layer of the evaluator's configuration: what differs from machine to machine and run to run.

    Args:
        plan: The plan.
        entry: The entry.
        part: Which of its native invocations.
        base_url: Where the server listens.
        model: The name asked for.
        output: The run directory; the evaluator writes into the part's folder in it.
        run_name: The run's name, which labels containers too.
        routed: Native options that lead the taskset to its pinned data.
    """
    launch = Launch(
        base_url=base_url,
        model=model,
        key_variable=plan.key_variable,
        runtime=plan.runtime,
        image=plan.image,
        docker=plan.docker,
        output=output,
        folder=part.folder,
        run_name=run_name,
        max_concurrent=entry.max_concurrent,
        seed=part.seed,
        routed=routed,
    )
    return merge(entry.over, dialect.of(plan.dialect).overrides(launch))
