"""The backend `mock`: everything the coordinator does, without an evaluator, data or, mostly, a network.

Its child (`assay.backends.mock_child`) is this checkout's own and follows rules that the job sets: how many
items, how long each takes, which are wrong, where it fails. With `ask` it sends each rollout down the lane
like any evaluator. Nothing it finds says anything about a model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from assay.backends import mock_child
from assay.backends.base import (
    Command,
    Context,
    Ended,
    Expected,
    Normalised,
    Reached,
    arguments_of,
    checked_arguments,
    require_endpoint,
    told_file,
    write_told,
)
from assay.backends.lines import LineCounter
from assay.backends.mock_records import PRIMARY, read_final, rows
from assay.digest import sha256_file
from assay.errors import ConfigurationError
from assay.paths import EVAL
from assay.suite.job import Job
from assay.suite.target import Table, Target


class Arguments(Table):
    """What the child does.

    Attributes:
        items: Tasks; the job's limit takes the first of them.
        sleep: Seconds that each rollout takes, beside what its request takes.
        wrong_every: Every so many are wrong; None for none.
        unknown_total: Whether the evaluator keeps to itself how many there are until it has ended.
        fail_at: The item, from 0, at which the evaluator fails and ends; None for none.
        ask: Whether each rollout is a request to the target.
    """

    items: int = Field(gt=0)
    sleep: float = Field(default=0.0, ge=0)
    wrong_every: int | None = Field(default=None, gt=0)
    unknown_total: bool = False
    fail_at: int | None = Field(default=None, ge=0)
    ask: bool = False


class Mock:
    """See the module."""

    name = "mock"
    arguments: type[BaseModel] = Arguments
    lists = False

    def validate(self, job: Job, target: Target) -> None:
        """Refuse options that are unknown or contradict each other."""
        arguments: Arguments = checked_arguments(self, job)
        if arguments.fail_at is not None and arguments.fail_at >= items(job, arguments):
            raise ConfigurationError(
                f"job {job.id}: fail_at is {arguments.fail_at}, and there is no such item",
                f"items are counted from 0 to {items(job, arguments) - 1}",
                "lower fail_at, or leave it out",
            )
        if arguments.ask:
            require_endpoint(job, target, "leave ask out, or name a target with an endpoint")
        if job.budget.tokens is not None and not arguments.ask:
            raise ConfigurationError(
                f"job {job.id} has a budget of tokens, and asks for none", "", "leave budget.tokens out"
            )

    def plan(self, job: Job, target: Target) -> Expected:
        """How many rollouts; None when the job says that the evaluator does not tell."""
        arguments: Arguments = arguments_of(self, job)
        total = None if arguments.unknown_total else items(job, arguments) * job.repeats
        return Expected(total, warnings=("a mock says nothing about a model",))

    def prepare(self, job: Job, target: Target) -> None:
        """Nothing is to be set up."""

    def require(self, job: Job, target: Target, environ: Mapping[str, str]) -> None:
        """Nothing need be there."""

    def inputs(self, job: Job, target: Target) -> Mapping[str, str]:
        """The child's own program."""
        return {"program:mock_child": sha256_file(Path(mock_child.__file__))}

    def data(self, job: Job) -> Sequence[str]:
        """None."""
        return ()

    def keys(self, job: Job) -> Sequence[str]:
        """Each item's number."""
        return [str(item) for item in range(items(job, arguments_of(self, job)))]

    def listing(self, context: Context) -> None:
        """Its child lists nothing."""

    def told(self, context: Context) -> Mapping[str, Any]:
        """The child's job."""
        return child_job(context, arguments_of(self, context.job))

    def words(self, context: Context) -> Sequence[str]:
        """This checkout's own program; no package is needed, so none is looked for."""
        return [sys.executable, "-S", "-m", mock_child.__name__, str(told_file(context))]

    async def run(self, context: Context) -> Ended:
        """Start the child and wait for its end."""
        arguments: Arguments = arguments_of(self, context.job)
        write_told(context, self.told(context))
        secrets = {}
        if arguments.ask and context.lane is not None:
            secrets[mock_child.KEY_VARIABLE] = context.lane.key
        command = Command(
            words=self.words(context),
            environment={"PYTHONPATH": str(EVAL), "PATH": os.environ.get("PATH", os.defpath)},
            cwd=context.folder,
            secrets=secrets,
        )
        count = LineCounter(context.folder / mock_child.RECORDS)
        total = self.plan(context.job, context.target).total
        return await context.start(command, lambda: Reached(count(), total))

    def normalize(self, context: Context, ended: Ended) -> Normalised:
        """The rows, in order; they are read while they are taken."""
        arguments: Arguments = arguments_of(self, context.job)
        final = read_final(context.folder / mock_child.ENDED)
        problems, notes = [], []
        planned: int | None = items(context.job, arguments) * context.job.repeats
        if final is not None and final.error is not None:
            problems.append(final.error)
        elif final is None and ended.why == "exit":
            said = f": {ended.said}" if ended.said else ""
            problems.append(f"the evaluator ended with exit code {ended.code} before it was done{said}")
        if arguments.unknown_total:
            planned = None
            if final is None or final.error is not None:
                notes.append("how many rollouts there were to be is not known: those that ended are told")
        return Normalised(
            rows=rows(context, planned), primary=PRIMARY, problems=tuple(problems), notes=tuple(notes)
        )


def items(job: Job, arguments: Arguments) -> int:
    """Tasks that are asked."""
    return arguments.items if job.limit is None else min(job.limit, arguments.items)


def child_job(context: Context, arguments: Arguments) -> dict[str, Any]:
    """What the child is told; no secret stands in it."""
    job, lane = context.job, context.lane
    generation = job.generation.model_dump(mode="json", exclude_none=True, exclude={"extra_body", "stop"})
    if job.generation.stop:
        generation["stop"] = list(job.generation.stop)
    return {
        **arguments.model_dump(mode="json"),
        "items": items(job, arguments),
        "repeats": job.repeats,
        "workers": context.slots,
        "base_url": lane.base_url if lane is not None else None,
        "model": lane.model if lane is not None else None,
        "generation": generation,
        "sampled": job.generation.sampled,
        "extra_body": dict(job.generation.extra_body),
    }
