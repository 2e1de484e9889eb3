"""A backend driven by hand: a context without a coordinator, and a launcher that only starts and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.backends.base import Backend, Command, Context, Ended, Lane, Normalised, Reached
from assay.record.sample import Sample
from assay.run.key import Key
from assay.suite.job import Job
from assay.suite.target import Target

KEY = "lane-key-of-a-test"
SECONDS = 240.0


@dataclass
class Launcher:
    """Starts a child and waits for its end; what it printed is kept.

    Attributes:
        commands: What was started.
        reached: What the child's records told while it ran.
        until: Asked while it runs: whether to end it now, with SIGKILL.
    """

    until: Callable[[Reached], bool] = lambda reached: False
    commands: list[Command] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    said: str = ""

    async def __call__(self, command: Command, progress: Callable[[], Reached]) -> Ended:
        self.commands.append(command)
        secrets = {name: key.reveal() for name, key in command.secrets.items()}
        child = await asyncio.create_subprocess_exec(
            *command.words,
            env={**command.environment, **secrets},
            cwd=command.cwd,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = asyncio.create_task(child.communicate())
        try:
            async with asyncio.timeout(SECONDS):
                while not output.done():
                    self.reached.append(progress())
                    if self.until(self.reached[-1]) and child.returncode is None:
                        child.kill()
                    await asyncio.wait({output}, timeout=0.1)
        finally:
            if child.returncode is None:
                child.kill()
            text, _ = await output
        self.said = text.decode("utf-8", "replace")
        return Ended(child.returncode or 0, "exit", self.said[-2000:])


@dataclass(frozen=True)
class Done:
    """A job that was asked, and what its records say.

    Attributes:
        context: The job.
        ended: How the child ended.
        normalised: What its records say; the rows are taken out.
        rows: The rows.
        launcher: Who started it.
    """

    context: Context
    ended: Ended
    normalised: Normalised
    rows: list[Sample]
    launcher: Launcher


def context_of(
    run: Path, job: Job, target: Target, base_url: str, slots: int, launcher: Launcher, attempt: int = 1
) -> Context:
    """The context of a job of a run in that folder, whose lane is the endpoint itself."""
    folder = run / job.id / f"attempt-{attempt}"
    scratch = run.parent / "scratch"
    for path in (folder, scratch):
        path.mkdir(parents=True, exist_ok=True)
    return Context(
        job=job,
        target=target,
        suite_digest="0" * 64,
        folder=folder,
        run=run,
        launch=run / "provenance" / "launch" / job.id,
        scratch=scratch,
        attempt=attempt,
        slots=slots,
        lane=Lane(base_url, target.model, Key(KEY)),
        data={},
        start=launcher,
    )


def drive(
    backend: Backend,
    run: Path,
    job: Mapping[str, Any],
    base_url: str,
    model: str = "stand-in",
    slots: int = 2,
    launcher: Launcher | None = None,
) -> Done:
    """Validate, plan, ask and read a job of that backend."""
    target = Target(name="there", base_url=(base_url,), model=model, max_concurrency=slots)
    asked = Job.model_validate({"id": "job", "backend": backend.name, "target": "there", **job})
    backend.validate(asked, target)
    launching = launcher or Launcher()
    context = context_of(run, asked, target, base_url, slots, launching)
    ended = asyncio.run(backend.run(context))
    normalised = backend.normalize(context, ended)
    return Done(context, ended, normalised, list(normalised.rows), launching)
