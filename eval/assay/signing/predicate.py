"""What is said of a run: the predicate of its statement, as frozen values with a JSON Schema.

It is small, and holds no text of a task, of an answer or of an error, so that it can be published with the
result. Every field follows from the run directory (`assay.signing.gather`), so that an auditor makes it again
and compares; what the operator's machine or the server said of itself is a claim, whoever signs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from assay.record.statistics import Method
from assay.record.summary import Outcome

PREDICATE_TYPE = "urn:assay:eval-run/v1"


class Part(BaseModel):
    """A part of the predicate."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Descriptor(Part):
    """An in-toto resource descriptor: something by its digest.

    Attributes:
        name: A path in the run directory, or the name of a frozen input (`kind:name`).
        uri: Where it is from, where it has an address that names these very bytes; left out otherwise.
        digest: By algorithm: `sha256` of bytes; `gitCommit`; `assayTree`, SHA-256 over the canonical JSON
            that maps the paths of a tree, or of an environment's records, to their digests.
    """

    name: str
    uri: str | None = None
    digest: Mapping[str, str]

    @model_serializer(mode="wrap")
    def _without_nothing(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = serialise(self)
        if self.uri is None:
            del found["uri"]
        return found


class Tool(Part):
    """A program of the operator's machine: the version it told, and the digest of its file."""

    version: str | None
    sha256: str | None


class Environment(Part):
    """What the run was made with, as its machine told it.

    Attributes:
        record: `provenance/environment.json`.
        kind: `nix`, `nix-override` or `host`.
        pinned: Whether every tool was the one that `flake.lock` names: only where kind is `nix`.
        assay: Version of the core.
        system: Kernel and C library.
        machine: Its instruction set.
        processor: Its name.
        processors: Their number.
        memory_bytes: All of it.
        runtime: Where rollouts ran; null where each job says it for itself.
        egress: Whether their network was cut; null where each job says it for itself.
        image: Of the sandbox, by its id; null where there was none.
        tools: By name; null for one that was not there.
        evaluators: Version of each evaluator whose description was frozen.
    """

    record: Descriptor | None
    kind: str | None
    pinned: bool
    assay: str | None
    system: str | None
    machine: str | None
    processor: str | None
    processors: int | None
    memory_bytes: int | None
    runtime: str | None
    egress: str | None
    image: str | None
    tools: Mapping[str, Tool | None]
    evaluators: Mapping[str, str]


class Checkout(Part):
    """The checkout of Assay that made the run.

    Attributes:
        commit: Of HEAD; null outside Git.
        clean: Whether its files were the commit's.
        changed: How many paths were not.
        diff_sha256: Over the difference, which is not recorded itself.
    """

    commit: str | None
    clean: bool
    changed: int | None
    diff_sha256: str | None


class Configuration(Part):
    """The whole effective configuration.

    Attributes:
        record: `resolved.json`.
        sha256: Over its canonical JSON (of a suite without `running`); the run's name ends in its first
            eight digits.
    """

    record: Descriptor
    sha256: str


class Counts(Part):
    """planned = scored + errored + truncated + missing; the others stand beside (docs/formats.md)."""

    planned: int
    scored: int
    errored: int
    truncated: int
    missing: int
    empty: int
    thought_only: int
    unparsed: int | None
    duplicates: int


class Asked(Part):
    """An entry of a profile, or a job of a suite.

    Attributes:
        name: The entry, or the job's id.
        status: Of the job; of the whole run for an entry.
        evaluator: Who asked and scored: the evaluator, or the job's backend.
        dataset: The taskset, or the job's dataset.
        target: The suite's name of who was asked; null in a profile, which has one server.
        model: The name that was asked for.
        rollouts: Of each task.
        seeds: Of the rollouts, where each has its own.
        limit: Only the first so many tasks were asked; null for all, or where the configuration says it.
        sampling: The options of its requests.
        limits: What else may end a rollout.
        launch: The files that its evaluator was started with, and the record of the command.
        counts: Its rollouts.
    """

    name: str
    status: Outcome
    evaluator: str
    dataset: str
    target: str | None
    model: str
    rollouts: int
    seeds: tuple[int, ...]
    limit: int | None
    sampling: Mapping[str, Any]
    limits: Mapping[str, Any]
    launch: tuple[Descriptor, ...]
    counts: Counts


class Score(Part):
    """A score beside its counts and its interval.

    Attributes:
        name: The entry, or the job's id.
        family: The generator or subset; null for a whole job.
        metric: What the score is the mean of, by the evaluator's name for it; null where it has none.
        score: Sum of rewards / planned; null where nothing was answered.
        ceiling: The same with every row without a score counted as 1.
        low: Lower bound of the interval.
        high: Upper bound.
        method: How the bounds were computed.
        confidence: Of the interval.
        clusters: Distinct questions.
        baseline: Score of the best constant answer; null where nobody tells.
        metrics: Each named reward's sum / planned.
        counts: Its rollouts.
    """

    name: str
    family: str | None
    metric: str | None
    score: float | None
    ceiling: float | None
    low: float | None
    high: float | None
    method: Method
    confidence: float
    clusters: int
    baseline: float | None
    metrics: Mapping[str, float]
    counts: Counts


class Endpoint(Part):
    """Who an endpoint said it is; null is what it did not say.

    Attributes:
        fingerprint: Its `system_fingerprint`.
        model: The name of its model.
        model_sha256: Of its model file.
        tokenizer_sha256: Of its tokenizer.
        template_sha256: Of its chat template.
        engine_version: Of its engine.
        engine_sha256: Of its engine's library.
        isa: The instruction set it computes with.
        image_id: Of the container that this machine's engine saw it in.
    """

    fingerprint: str | None
    model: str | None
    model_sha256: str | None
    tokenizer_sha256: str | None
    template_sha256: str | None
    engine_version: str | None
    engine_sha256: str | None
    isa: str | None
    image_id: str | None


class Server(Part):
    """One look at who was asked: a claim of the server's.

    Attributes:
        record: The whole of it, below `provenance/server/`.
        endpoints: One each.
    """

    record: Descriptor
    endpoints: tuple[Endpoint, ...]


class EvalRun(Part):
    """The predicate `urn:assay:eval-run/v1`.

    Attributes:
        kind: What was run.
        name: The profile's or suite's.
        pins: The pin set that was in force; only `production` is what a profile stands for.
        status: done, partial, failed or cancelled.
        problems: How many faults fail it; its summary names them.
        notes: How many other remarks there are.
        started_at: UTC, ISO 8601.
        ended_at: The same.
        resumed: How often it was taken up again.
        configuration: What was to be asked.
        checkout: What asked.
        environment: With what.
        materials: Every frozen input, by name.
        asked: What was asked, in its order.
        servers: Who was asked, before and after each entry or attempt of a job, by the record's name.
        declared: What the operator says of the servers; null where it was not recorded.
        scores: What was found, in the order of the summary.
    """

    kind: Literal["profile", "suite"]
    name: str
    pins: str
    status: Outcome
    problems: int
    notes: int
    started_at: str | None
    ended_at: str | None
    resumed: int
    configuration: Configuration
    checkout: Checkout
    environment: Environment
    materials: tuple[Descriptor, ...]
    asked: tuple[Asked, ...]
    servers: tuple[Server, ...]
    declared: Descriptor | None
    scores: tuple[Score, ...]
