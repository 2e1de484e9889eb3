"""A suite: targets, and the jobs that are asked of them, as one value without secrets."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from assay.digest import value_digest
from assay.profile import SEGMENT
from assay.suite.job import Budget, Job
from assay.suite.target import Table, Target

SCHEMA: Literal["assay/suite/v1"] = "assay/suite/v1"
Retention = Literal["all", "errors", "none"]


class Running(Table):
    """How the coordinator works; nothing here decides a result.

    Attributes:
        max_parallel_jobs: Jobs active at once, over all targets.
        retention: What of the evaluators' records is kept when a job is complete: all, only the rows that
            did not go well, or none of them.
        heartbeat_seconds: Between two lines of progress where there is no terminal.
        memory_gib: Most memory of one child and what it starts; None for no bound.
        budget: Over the whole run.
    """

    max_parallel_jobs: int = Field(default=1, gt=0, le=64)
    retention: Retention = "all"
    heartbeat_seconds: float = Field(default=15.0, gt=0)
    memory_gib: float | None = Field(default=None, gt=0)
    budget: Budget = Budget()


class Suite(Table):
    """The whole effective configuration of a suite's run: `resolved.json`.

    Attributes:
        schema_version: Of this form.
        name: One path segment: the file's name, and the chosen list's after a dot, if one was chosen.
        description: What it is, in one sentence, printed with every result.
        pins: The pin set that everything is taken from.
        running: How the coordinator works.
        targets: In the order of the file; only those that jobs name.
        jobs: In the order they are started.
    """

    schema_version: Literal["assay/suite/v1"] = SCHEMA
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}(\.[a-z0-9][a-z0-9_-]{0,63})?$")
    description: str
    pins: str = Field(pattern=SEGMENT)
    running: Running = Running()
    targets: tuple[Target, ...] = Field(min_length=1)
    jobs: tuple[Job, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for what, names in (("target", [t.name for t in self.targets]), ("job", [j.id for j in self.jobs])):
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"two {what}s are called {twice!r}")
        known = {target.name for target in self.targets}
        for job in self.jobs:
            if job.target not in known:
                raise ValueError(f"job {job.id} names the target {job.target!r}, which is not there")
        return self

    def target(self, job: Job) -> Target:
        """The target of a job."""
        return next(target for target in self.targets if target.name == job.target)

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON of what decides a result: how the coordinator works is left out."""
        return value_digest(self.model_dump(mode="json", exclude={"running"}))
