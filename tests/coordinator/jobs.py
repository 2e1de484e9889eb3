"""Jobs of the mock backend, run as the coordinator runs them, without a suite around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.backends.base import Command, Context, Ended, Lane, Launcher, Normalised, Reached
from assay.backends.registry import find
from assay.coordinator.child import launcher
from assay.coordinator.redact import Secrets
from assay.coordinator.stop import Stop
from assay.record.sample import Sample
from assay.suite.job import Job
from assay.suite.target import Target

NOBODY = Target(name="nobody", protocol="none", max_concurrency=4)


def mock_job(**fields: Any) -> Job:
    """A job of the mock; `backend_args` and what else a job has."""
    return Job.model_validate(
        {"id": "job", "backend": "mock", "dataset": "mock", "target": "nobody", **fields}
    )


@dataclass
class Done:
    """What came of a job.

    Attributes:
        ended: How its child ended.
        normalised: What its records say.
        rows: Its rows.
        log: Lines of the run's log.
        heard: How far it was said to be.
        commands: What was started.
    """

    ended: Ended
    normalised: Normalised
    rows: Sequence[Sample]
    log: list[str] = field(default_factory=list)
    heard: list[Reached] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


async def _never(command: Command, reached: Callable[[], Reached]) -> Ended:
    raise AssertionError("nothing is to be started")


def context_of(
    run: Path,
    job: Job,
    start: Launcher = _never,
    *,
    target: Target = NOBODY,
    lane: Lane | None = None,
    slots: int = 4,
) -> Context:
    """A job's context in its first attempt; see `carry_out`."""
    return Context(
        job=job,
        target=target,
        suite_digest="0" * 64,
        folder=run / job.id / "attempt-1",
        run=run,
        launch=run / "provenance" / "launch" / job.id,
        scratch=run / "scratch",
        attempt=1,
        slots=slots,
        lane=lane,
        data={},
        start=start,
    )


def carry_out(
    run: Path,
    job: Job,
    *,
    target: Target = NOBODY,
    lane: Lane | None = None,
    slots: int = 4,
    meanwhile: Callable[[Stop, list[Reached]], None] | None = None,
) -> Done:
    """Run a job to its end.

    Args:
        run: The run directory.
        job: The job.
        target: Its target.
        lane: Where it asks.
        slots: Its workers.
        meanwhile: Called whenever the child is further.
    """
    backend = find(job.backend)
    backend.validate(job, target)
    (run / job.id / "attempt-1").mkdir(parents=True)
    log: list[str] = []
    heard: list[Reached] = []
    commands: list[Command] = []

    async def work() -> tuple[Context, Ended]:
        stop = Stop()

        def hear(reached: Reached) -> None:
            heard.append(reached)
            if meanwhile is not None:
                meanwhile(stop, heard)

        start = launcher(
            job=job.id,
            log=log.append,
            secrets=Secrets(),
            stop=stop,
            heard=hear,
            record=commands.append,
        )
        context = context_of(run, job, start, target=target, lane=lane, slots=slots)
        return context, await backend.run(context)

    context, ended = asyncio.run(asyncio.wait_for(work(), 120))
    normalised = backend.normalize(context, ended)
    return Done(ended, normalised, list(normalised.rows), log, heard, commands)
