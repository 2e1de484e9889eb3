"""What a backend is: four methods, and the values that go between it and the coordinator.

A backend asks nobody by itself. Its one subprocess a job is given the address of a *lane*: a gateway of the
run, on loopback, which forwards requests unchanged to the target, holds the target's slots, owns every retry,
keeps each answer before it hands it on, and answers what was answered before from what it kept. So a child
runs with retries of its own off, with as many workers as slots it may ever hold, and is simply started again
by a resume; whether it ended well is told by its records and never by its exit code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel

from assay.errors import ConfigurationError
from assay.files import write_json_atomic
from assay.record.sample import Baseline, Sample
from assay.run.key import Key
from assay.suite.faults import FaultyError, build
from assay.suite.job import Job
from assay.suite.target import Target


@dataclass(frozen=True)
class Expected:
    """What a job will ask, known without a request.

    Attributes:
        total: Samples, repeats included; None where only the run can tell.
        unit: What is counted.
        supports_resume: Whether an interrupted job goes on where it was.
        requirements: What must be there: environments, data, variables, in words a user can act on.
        warnings: What a reader of the result should know.
    """

    total: int | None
    unit: str = "samples"
    supports_resume: bool = True
    requirements: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lane:
    """Where a job's child asks.

    Attributes:
        base_url: Of the run's gateway, ending in `/v1`; this job's alone.
        model: The name to ask for.
        key: Made for this job; it opens the lane and nothing else.
    """

    base_url: str
    model: str
    key: Key


@dataclass(frozen=True)
class Command:
    """A child to start.

    Attributes:
        words: Program and arguments; no secret stands among them.
        environment: Its whole environment, but for the secrets.
        secrets: Variables that hold secrets; recorded by name alone, redacted from what the child says.
        cwd: Its working directory.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path
    secrets: Mapping[str, Key] = field(default_factory=dict)


@dataclass(frozen=True)
class Reached:
    """How far a child has come, by its own records.

    Attributes:
        done: Samples finished.
        total: Samples in all; None where nobody knows yet.
    """

    done: int
    total: int | None = None


@dataclass(frozen=True)
class Ended:
    """How a child ended. It is recorded, and decides nothing.

    Attributes:
        code: Exit status; negative for a signal.
        why: "exit", "cancelled", "budget" or "disk".
        said: The last lines it printed, secrets redacted.
    """

    code: int
    why: str
    said: str


LIST = "list"
"""The word after which a child that lists its samples ends before it asks."""
Launcher = Callable[[Command, Callable[[], Reached]], Awaitable[Ended]]


@dataclass(frozen=True)
class Context:
    """A job while it runs.

    Attributes:
        job: What is asked.
        target: Of whom.
        suite_digest: Digest of the suite, from which seeds of statistics are taken.
        folder: Where the child writes, made for this attempt: `<run>/<job>/attempt-<n>`.
        run: The run directory, to which paths in rows are relative.
        launch: Where what the child was given is recorded: `provenance/launch/<job>`.
        scratch: Private, gone when the job ends, never part of the record.
        attempt: From 1; each resume of an unfinished job makes another.
        slots: Requests the child may ever have in flight: its number of workers.
        lane: Where it asks; None where nobody is asked.
        data: Verified local directories by name in `datasets.lock`.
        start: Starts a child and waits for its end; it shows and records progress meanwhile.
    """

    job: Job
    target: Target
    suite_digest: str
    folder: Path
    run: Path
    launch: Path
    scratch: Path
    attempt: int
    slots: int
    lane: Lane | None
    data: Mapping[str, Path]
    start: Launcher


@dataclass(frozen=True)
class Normalised:
    """What a job's records say, in the one form of every backend.

    Attributes:
        rows: One for each planned rollout (`Sample.entry` is the job's id), those that never happened
            included as `missing`; rollouts of a task stand beside each other. It may be a generator.
        primary: Name in `Sample.rewards` of the benchmark's primary metric, which is also `Sample.reward`.
        reported: Metrics as the evaluator itself reports them, by name, for the reader to compare.
        official: Whether the evaluator's own overall figure may be called so: everything was asked.
        problems: Faults of the records that fail the job.
        notes: What else a reader should know.
        sampling: The options as they reached the server, where the evaluator's own configuration decides;
            None where the job's generation does.
        baselines: What the best constant answer scores, by family, where the taskset tells.
    """

    rows: Iterable[Sample]
    primary: str
    reported: Mapping[str, float] = field(default_factory=dict)
    official: bool = False
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sampling: Mapping[str, Any] | None = None
    baselines: Mapping[str, Baseline] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """How a child is let list its samples.

    Attributes:
        environment: Its whole environment, but for its key.
        record: The file that it writes, in the context's folder.
    """

    environment: Mapping[str, str]
    record: str


class Backend(Protocol):
    """An evaluator as the coordinator knows it; `assay.backends.registry` has them by name.

    Attributes:
        name: In the registry, and in a job.
        arguments: Its model of a job's `backend_args`.
        lists: Whether its child writes down what it will ask before it asks, and can be ended there.
    """

    name: str
    arguments: type[BaseModel]
    lists: bool

    def validate(self, job: Job, target: Target) -> None:
        """Refuse what cannot run, from the configuration alone.

        Raises:
            ConfigurationError: an option is unknown, or contradicts another.
        """

    def plan(self, job: Job, target: Target) -> Expected:
        """What the job will ask; nothing is asked, and nothing fetched."""

    def prepare(self, job: Job, target: Target) -> None:
        """Set up what a run may set up by itself, before `require`: environments and images, never data.

        Raises:
            AssayError: it cannot be set up, or is there and not as it is locked.
        """

    def require(self, job: Job, target: Target, environ: Mapping[str, str]) -> None:
        """Refuse what is not there: `--check-runtime`, and before every run.

        Raises:
            ConfigurationError: a secret is not set.
            PrerequisiteError: an environment, a program or data are missing.
        """

    def inputs(self, job: Job, target: Target) -> Mapping[str, str]:
        """What decides the job's result, by digest (`kind:name`): environment, locks, data, templates."""

    def data(self, job: Job) -> Sequence[str]:
        """Names in `datasets.lock` that the job reads."""

    def keys(self, job: Job) -> Sequence[str] | None:
        """Keys of all tasks that the job asks, in order, where the job alone decides them; None elsewhere."""

    def listing(self, context: Context) -> Listing | None:
        """How the child is let list what it will ask, as its command's last word `LIST` makes it do.

        None where it lists nothing. The context's folder and launch folder are private ones.
        """

    def told(self, context: Context) -> Mapping[str, Any] | None:
        """What the child is told in the file `told_file(context)`, without a secret; None where it has none.

        It follows from the job, the target, the lane and the folders alone: the audit computes it again.
        """

    def words(self, context: Context) -> Sequence[str]:
        """The child's command line, which follows from the same; no secret stands in it."""

    async def run(self, context: Context) -> Ended:
        """Start the child with `context.start` and wait for its end."""

    def normalize(self, context: Context, ended: Ended) -> Normalised:
        """Read the child's records; never raises for what a child left, however torn."""


def told_file(context: Context) -> Path:
    """Where what the child is told is recorded, for it to read."""
    return context.launch / f"attempt-{context.attempt}.json"


def write_told(context: Context, told: Mapping[str, Any]) -> None:
    """Write what the child is told."""
    path = told_file(context)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, dict(told))


def checked_arguments(backend: Backend, job: Job) -> Any:
    """The job's backend arguments as the backend's own model, types strict as everywhere in a suite.

    Raises:
        ConfigurationError: they do not fit; an unknown one is told with the nearest.
    """
    try:
        return build(backend.arguments, job.backend_args, "backend_args")
    except FaultyError as faults:
        raise ConfigurationError(
            f"job {job.id}: the arguments of the backend {backend.name} cannot be used",
            str(faults),
            "mend backend_args of that job",
        ) from None


def arguments_of(backend: Backend, job: Job) -> Any:
    """The job's backend arguments as the backend's own model; ValidationError when they do not fit."""
    return backend.arguments.model_validate(dict(job.backend_args))


def require_endpoint(job: Job, target: Target, instead: str = "name a target with an endpoint") -> None:
    """Raise ConfigurationError, with what to do instead, where a job asks and its target has no endpoint."""
    if target.protocol == "none":
        raise ConfigurationError(
            f'job {job.id} asks, and nobody answers at the target "{target.name}"',
            'its protocol is "none"',
            instead,
        )
