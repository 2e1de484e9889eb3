"""The backend `verifiers`: an entry of a profile, asked as `assay run` asks it, and auditable by itself.

The job's one child is that command of this checkout, with the job's lane as a server that is already there;
its run directory lies in the job's folder, with everything that a profile's run records. The rows are its
own. What the job asks otherwise than the profile (fewer tasks, other sampling) is laid over the entry in the
evaluator's own words. The client of Verifiers repeats nothing; the programs of its harnesses repeat what
failed for good, and get the same failure from the gateway again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from assay import pinset, setup
from assay.backends.base import (
    Command,
    Context,
    Ended,
    Expected,
    Normalised,
    arguments_of,
    checked_arguments,
    require_endpoint,
)
from assay.backends.verifiers_records import PRIMARY, Inner, found_in, rows
from assay.dialect.flat import inline
from assay.errors import ConfigurationError
from assay.evaluator import load_evaluator
from assay.files import write_atomic
from assay.paths import EVAL
from assay.plan import Plan
from assay.planning import PLACEHOLDER_IMAGE, make_plan
from assay.profile import EntryFacts, Profile, choose_entries, find_profile
from assay.run import route
from assay.run.native import PASSED_ON
from assay.shell import VARIABLES as OF_THE_SHELL
from assay.shell import python_variables
from assay.suite.job import Generation, Job
from assay.suite.target import Table, Target

NOWHERE = "http://127.0.0.1:1/v1"
INHERITED = (*PASSED_ON, *OF_THE_SHELL, "ASSAY_LIBRARY_PATH", pinset.VARIABLE, "PATH", "HOME")


class Arguments(Table):
    """The job's `backend_args`.

    Attributes:
        runtime: Where rollouts run; None for the first of the profile's that is there.
    """

    runtime: Literal["docker", "subprocess"] | None = None


class Verifiers:
    """See the module."""

    name: str = "verifiers"
    arguments: type[BaseModel] = Arguments
    lists = False

    def validate(self, job: Job, target: Target) -> None:
        """Refuse an entry that is not there, and what contradicts it."""
        arguments: Arguments = checked_arguments(self, job)
        require_endpoint(job, target)
        profile, facts = entry_of(job)
        if job.repeats != facts.rollouts:
            raise ConfigurationError(
                f"job {job.id} asks for {job.repeats} repeats",
                f"the entry {job.dataset} has {facts.rollouts} rollouts a task, each with what it needs",
                f"write repeats = {facts.rollouts}, or name another entry",
            )
        drafted(job, target, arguments.runtime or profile.runtimes[0])

    def plan(self, job: Job, target: Target) -> Expected:
        """What the profile promises, cut to the limit."""
        profile, facts = entry_of(job)
        plan = drafted(job, target, profile.runtimes[0])
        evaluator = load_evaluator(profile.evaluator)
        needed = [f"the environment {evaluator.name}: eval/scripts/setup {evaluator.name}"]
        needed += [f"the data set {name}: eval/scripts/data {name}" for name in self.data(job)]
        if profile.runtimes == ("docker",):
            needed.append(f"a Docker engine, and the image of {evaluator.name}: eval/scripts/sandbox")
        whole = plan.planned == facts.tasks * facts.rollouts
        warnings = [] if whole else ["only a part of the entry is asked"]
        return Expected(plan.planned, requirements=tuple(needed), warnings=tuple(warnings))

    def prepare(self, job: Job, target: Target) -> None:
        """Make the environment and, where rollouts run in containers, the image."""
        from assay.run.prepare import choose_runtime, sandbox_image

        profile, _ = entry_of(job)
        arguments: Arguments = arguments_of(self, job)
        runtime = choose_runtime(profile, arguments.runtime)
        setup.ensure(setup.ENVIRONMENTS[profile.evaluator])
        if runtime == "docker":
            sandbox_image(profile.evaluator, lambda: None)

    def require(self, job: Job, target: Target, environ: Mapping[str, str]) -> None:
        """Refuse to start without the environment, the pinned data, or a runtime and its image."""
        profile, _ = entry_of(job)
        setup.require(setup.ENVIRONMENTS[profile.evaluator])
        route.require(self.data(job))
        self._prepared(job, target)

    def inputs(self, job: Job, target: Target) -> Mapping[str, str]:
        """All that a run of the entry freezes."""
        from assay.run.freeze import freeze  # with Docker's client, as below: a look at a suite needs none

        plan = self._prepared(job, target)
        return freeze(plan, load_evaluator(plan.evaluator))

    def data(self, job: Job) -> Sequence[str]:
        """The pinned data of the entry's taskset."""
        profile, _ = entry_of(job)
        target = Target(name="nowhere", base_url=(NOWHERE,), model="none", max_concurrency=1)
        return route.names(drafted(job, target, profile.runtimes[0]), load_evaluator(profile.evaluator))

    def keys(self, job: Job) -> None:
        """Only the evaluator knows them."""

    def listing(self, context: Context) -> None:
        """Its child lists nothing."""

    def told(self, context: Context) -> None:
        """Nothing but its command."""

    def words(self, context: Context) -> Sequence[str]:
        """The command `run` of this checkout, with the lane as a server that is there."""
        job, lane = context.job, context.lane
        if lane is None:
            raise ConfigurationError(f"job {job.id} has nobody to ask", "it has no lane", "")
        profile, facts = entry_of(job)
        words = [sys.executable, "-P", "-m", "assay.cli", "run", profile.name, facts.name]
        words += ["--base-url", lane.base_url, "--model", lane.model, "--key-file", str(_key_file(context))]
        words += ["--concurrency", str(context.slots), "--runs", str(context.folder), "--json"]
        arguments: Arguments = arguments_of(self, job)
        if arguments.runtime is not None:
            words += ["--runtime", arguments.runtime]
        if job.limit is not None:
            words += ["--limit", str(job.limit)]
        for line in _lines(sampling(job.generation)):
            words += ["--set", line]
        return words

    async def run(self, context: Context) -> Ended:
        """Start the command and wait for its end."""
        job, lane = context.job, context.lane
        if lane is None:
            raise ConfigurationError(f"job {job.id} has nobody to ask", "it has no lane", "")
        from assay.run import containers

        for attempt in range(1, context.attempt):
            # What an attempt that was killed may have left.
            await asyncio.to_thread(containers.sweep_ended, context.folder.with_name(f"attempt-{attempt}"))
        write_atomic(_key_file(context), lane.key.reveal().encode("ascii"), mode=0o600)
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        command = Command(
            words=self.words(context),
            # The core that runs, wherever another one may be installed.
            environment={**python_variables(), **inherited, "PYTHONPATH": str(EVAL)},
            cwd=context.folder,
        )
        return await context.start(command, Inner(context.folder))

    def normalize(self, context: Context, ended: Ended) -> Normalised:
        """The rows of the run in the job's folder, and what it says of itself."""
        found = found_in(context.folder)
        problems = list(found.problems)
        if found.run is None and ended.why == "exit":
            said = f": {ended.said}" if ended.said else ""
            problems.append(f"no run was begun (exit code {ended.code}){said}")
        elif not found.recorded and ended.why == "exit":
            problems.append(f"the run came to no end of its own (exit code {ended.code})")
        return Normalised(
            rows=rows(context, found),
            primary=PRIMARY,
            reported=found.scores,
            problems=tuple(problems),
            notes=found.notes,
            sampling=found.sampling,
            baselines=found.baselines,
        )

    def _prepared(self, job: Job, target: Target) -> Plan:
        """The plan with the runtime that is there and its image; raises as `assay run` does."""
        from assay import sandbox
        from assay.run.prepare import choose_runtime

        profile, _ = entry_of(job)
        arguments: Arguments = arguments_of(self, job)
        runtime = choose_runtime(profile, arguments.runtime)
        image = sandbox.check(profile.evaluator).image_id if runtime == "docker" else PLACEHOLDER_IMAGE
        return drafted(job, target, runtime, image)


def entry_of(job: Job) -> tuple[Profile, EntryFacts]:
    """The profile and the entry that a job asks; ConfigurationError, with the nearest names, for none."""
    name, slash, entry = job.dataset.partition("/")
    if not slash:
        raise ConfigurationError(
            f"job {job.id} names {job.dataset!r}, which is no entry of a profile",
            "",
            "write it as PROFILE/ENTRY (eval/configs/profiles.toml)",
        )
    profile = find_profile(name)
    return profile, choose_entries(profile, entry)[0]


def sampling(generation: Generation) -> dict[str, Any]:
    """The options that the job gives; what it leaves out is as the profile says."""
    given = generation.model_dump(mode="json", exclude_none=True)
    return {name: value for name, value in given.items() if value not in ([], {})}


def _key_file(context: Context) -> Path:
    return context.scratch / "key"


def drafted(job: Job, target: Target, runtime: Any, image: str = PLACEHOLDER_IMAGE) -> Plan:
    """The plan of a job's run, but for the address that it asks and how much of it at once."""
    profile, facts = entry_of(job)
    base_url = target.base_url[0] if target.base_url else NOWHERE
    return make_plan(
        profile,
        facts.name,
        runtime,
        image if runtime == "docker" else None,
        base_url,
        target.model or "served",
        limit=job.limit,
        sampling=sampling(job.generation),
    )


def _lines(options: Mapping[str, Any]) -> list[str]:
    """Options as lines of TOML."""
    return [f"{name} = {inline(value)}" for name, value in options.items()]
