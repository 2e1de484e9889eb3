"""Were the tasks that a suite's rows tell of the ones that its benchmarks have, in their order?

What a job was going to ask was written down before anything was asked. Rows must be these tasks, each as
often as the job says; and where environment and data are here, the evaluator is let list them once more, up
to the moment at which it would ask.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace

from assay.audit.check import Check
from assay.audit.pinned_checks import told
from assay.audit.suite_case import SuiteCase
from assay.audit.suite_launch_checks import KEYS
from assay.backends import places
from assay.backends.base import LIST, Context, Listing, told_file, write_told
from assay.coordinator.directory import attempt_folder
from assay.errors import AssayError, PrerequisiteError, VerificationError
from assay.process import finish
from assay.run.freeze import names
from assay.run.native import last_words
from assay.suite.job import Job

NAME = "tasks"
NOWHERE = "http://127.0.0.1:1/{job}/v1"
NOBODY = "nobody is asked"
SECRETS = ("SERPAPI_API_KEY",)
SHOWN = 3
TIMEOUT_S = 1800.0


def tasks(case: SuiteCase) -> Check:
    """The rows of each job are its tasks in their order, in every rollout, and the tasks are upstream's."""
    faults: list[str] = []
    absent: list[str] = []
    said: list[str] = []
    for job in case.suite.jobs:
        if not case.state.job(job.id).attempt:
            continue
        faults += [f"{job.id}: {each}" for each in _rows(case, job)]
        try:
            count = _listed_again(case, job)
        except PrerequisiteError as error:
            absent.append(f"{job.id}: its tasks cannot be listed again here: {error.what}")
        except AssayError as error:
            faults.append(f"{job.id}: {error}")
        else:
            said += [] if count is None else [f"{job.id}: {count} samples, listed again by the evaluator"]
    return told(NAME, faults, absent, tuple(said) or ("rows are tasks x rollouts, in their order",))


def _rows(case: SuiteCase, job: Job) -> Iterator[str]:
    """What is odd about the order and the number of a job's rows."""
    seen: dict[str, None] = {}
    groups = itertools.groupby(case.rows(job), key=lambda row: (row.family, row.task_key))
    short = 0
    for (_, key), group in groups:
        rollouts = [row.rollout for row in group]
        if key in seen:
            yield f"task {key} stands in several places"
        seen[key] = None
        if rollouts != list(range(len(rollouts))) or len(rollouts) > job.repeats:
            yield f"task {key} has the rollouts {rollouts} of {job.repeats}"
        short += len(rollouts) < job.repeats
    result = next((each for each in case.summary.jobs if each.job == job.id), None)
    if short and (result is None or result.status == "done"):
        yield f"{short} task(s) lack a rollout, though the job is done"
    known = case.backend(job).keys(job)
    if known is None:
        return
    strangers = sorted(set(seen).difference(known))
    if strangers:
        yield f"the tasks {', '.join(strangers[:SHOWN])} are none of the benchmark's"
    elif result is not None and result.status == "done" and list(seen) != list(known):
        yield "its tasks are not all of the benchmark's, in their order"


def _listed_again(case: SuiteCase, job: Job) -> int | None:
    """Let the evaluator list a job's samples once more; None where its backend lists none.

    Returns:
        How many there are: the recorded ones, each the same.

    Raises:
        PrerequisiteError: what it needs is not here.
        VerificationError: they are others.
    """
    attempt = case.state.job(job.id).attempt
    lane = case.lane(job, NOWHERE.format(job=job.id)) if case.suite.target(job).protocol != "none" else None
    with case.context(job, attempt, lane) as context:
        folder = context.scratch / "listed"
        folder.mkdir()
        apart = replace(context, folder=folder, launch=context.scratch / "told")
        recorded = case.run / attempt_folder(job.id, attempt)
        try:
            listing = case.backend(job).listing(apart) if _here(case, job) else None
        except (AssayError, OSError) as error:
            raise PrerequisiteError(str(error)) from error
        if listing is None or not (recorded / listing.record).is_file():
            return None
        found = _ask(case, job, apart, listing)
        lines = found.splitlines()
        kept = (recorded / listing.record).read_bytes().splitlines()
        for number, (one, other) in enumerate(itertools.zip_longest(kept, lines), start=1):
            if one != other:
                raise VerificationError(
                    f"{listing.record} line {number} is not what the evaluator lists",
                    f"recorded are {len(kept)} samples, listed {len(lines)}",
                )
        return len(lines)


def _here(case: SuiteCase, job: Job) -> bool:
    """Whether the backend lists samples; PrerequisiteError where what it reads is not here as it was."""
    backend = case.backend(job)
    if not backend.lists:
        return False
    backend.require(job, case.suite.target(job), {**os.environ, **dict.fromkeys(SECRETS, NOBODY)})
    for place in names(case.frozen.jobs.get(job.id, ()), "local"):
        if places.digests([place]).get(f"local:{place}") != case.before.get(f"local:{place}"):
            raise PrerequisiteError(f"{place} is not what the run read")
    return True


def _ask(case: SuiteCase, job: Job, context: Context, listing: Listing) -> bytes:
    """What the evaluator lists; it is ended before it would ask."""
    backend = case.backend(job)
    write_told(context, backend.told(context) or {})
    env = {**listing.environment, KEYS[job.backend]: NOBODY}
    words = [*backend.words(context), LIST]
    done = finish(words, env=env, cwd=context.scratch, timeout_s=TIMEOUT_S)
    path = context.folder / listing.record
    if done.returncode != 0 or not path.is_file():
        raise VerificationError(
            f"the evaluator does not list the tasks of {told_file(context).name}", last_words(done.stderr)
        )
    return path.read_bytes()
