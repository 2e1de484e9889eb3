"""A suite's jobs: each backend's saved answers scored again, read by the same readers, and compared."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from assay import data
from assay.audit.check import Check
from assay.audit.rescore.child import private
from assay.audit.rescore.scores import Scores, held, of_sample
from assay.backends import registry
from assay.backends.base import Backend, Context, Ended
from assay.backends.verifiers_records import directory
from assay.coordinator import records
from assay.coordinator.directory import attempt_folder, load_suite
from assay.coordinator.state import State, load_state
from assay.errors import PrerequisiteError
from assay.run.native import Scratch
from assay.suite.job import Job
from assay.suite.suite import Suite

NAME = "rescore"
Scorer = Callable[[Context, Path, Scratch], list[str]]
Guard = Callable[[str, Callable[[str], Check]], Check]
SCORERS = {
    "evalscope": "assay.audit.rescore.evalscope",
    "inspect": "assay.audit.rescore.inspect",
    "mock": "assay.audit.rescore.mock",
}
# What the evaluators were going to ask, as their programs wrote it down.
PLANS = ("tasks.jsonl", "planned.jsonl")


@dataclass(frozen=True)
class Held:
    """A suite's run as far as it is needed here."""

    run: Path
    suite: Suite
    state: State


def checks(run: Path, guarded: Guard, rescore: Callable[[Path, str], list[Check]]) -> list[Check]:
    """A check for each job; a job that is a run of its own has one for each entry of it.

    Raises:
        VerificationError: configuration or state cannot be read.
    """
    held_run = Held(run, load_suite(run), load_state(run))
    found: list[Check] = []
    for job in held_run.suite.jobs:
        inner = _inner(held_run, job)
        if inner is None:
            found.append(guarded(f"{NAME} {job.id}", partial(check, held_run, job)))
        else:
            found += rescore(inner, f"{job.id}: ")
    return found


def check(run: Held, job: Job, name: str) -> Check:
    """A job's check.

    Raises:
        ConfigurationError: its configuration is none that this checkout runs.
        PrerequisiteError: its records, environment or data are not here.
        VerificationError: its record cannot be scored.
    """
    state = run.state.job(job.id)
    if state.attempt == 0:
        raise PrerequisiteError(f"{job.id}: nothing was asked")
    if not (run.run / attempt_folder(job.id, state.attempt)).is_dir():
        kept = run.suite.running.retention
        raise PrerequisiteError(f"{job.id}: of the evaluators' records the suite kept: {kept}")
    if job.backend not in SCORERS:
        raise PrerequisiteError(f"{job.id}: no run was begun in it")
    backend = registry.find(job.backend)
    backend.validate(job, run.suite.target(job))
    with private() as scratch:
        context = records.context_of(
            run.run, run.suite, job, state, {name: local(name) for name in backend.data(job)}, scratch.path
        )
        ended = records.ended_of(state)
        names: dict[tuple[str, int], str] = {}
        recorded = {}
        for row in backend.normalize(context, ended).rows:
            place = f"{row.record or job.id} line {row.line} (task {row.task_key}, rollout {row.rollout})"
            names[row.task_key, row.rollout] = place
            recorded[place] = of_sample(row)
        faults: list[str] = []

        def again() -> Scores:
            return scored(backend, context, ended, names, faults)

        return held(name, recorded, again, f"the scorer of {job.backend}", faults)


def local(name: str) -> Path:
    """Where data of that name are, hashed whole; PrerequisiteError when they are not here."""
    data.verify(name)
    return data.find(name).path


def scored(
    backend: Backend,
    context: Context,
    ended: Ended,
    names: Mapping[tuple[str, int], str],
    faults: list[str],
) -> Scores:
    """Score a job's answers into a folder of its own and read that as an attempt's."""
    with private() as scratch:
        run = scratch.folder("run")
        folder = run / context.folder.relative_to(context.run)
        folder.mkdir(parents=True)
        # Here alone, as its backend is: no other needs what it needs.
        score: Scorer = importlib.import_module(SCORERS[backend.name]).score
        odd = score(context, folder, scratch)
        faults[:] = [*odd, *planned_otherwise(context, folder)]
        there = replace(context, run=run, folder=folder, scratch=scratch.folder("read"))
        return {
            names[row.task_key, row.rollout]: of_sample(row)
            for row in backend.normalize(there, ended).rows
            if (row.task_key, row.rollout) in names
        }


def planned_otherwise(context: Context, folder: Path) -> list[str]:
    """What the evaluator plans of the data here, where that is not what the record has as planned."""
    return [
        f"{(context.folder / name).relative_to(context.run).as_posix()} is not what its data give here"
        for name in PLANS
        if (folder / name).is_file() and (folder / name).read_bytes() != (context.folder / name).read_bytes()
    ]


def _inner(run: Held, job: Job) -> Path | None:
    """The run that a job of `verifiers` made; None for other jobs, and where there is none."""
    state = run.state.job(job.id)
    if job.backend != "verifiers" or state.attempt == 0:
        return None
    return directory(run.run / attempt_folder(job.id, state.attempt))
