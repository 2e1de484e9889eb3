"""The whole runs inside a suite's run: what a job of the backend `verifiers` made in its folder.

Such a run is audited by the checks of a profile's run, each told with the job's name before it. What the
outer run answers for already is left out: it holds every byte, and its environments are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from assay.audit.case import Case
from assay.audit.check import Check, judge
from assay.audit.record_checks import differences
from assay.audit.suite_case import SuiteCase
from assay.backends.base import arguments_of
from assay.backends.verifiers import Arguments, drafted
from assay.backends.verifiers_records import directory
from assay.coordinator.directory import attempt_folder
from assay.errors import AssayError
from assay.plan import OtherServer
from assay.record.manifest import NAME as MANIFEST
from assay.suite.job import Job

BACKEND = "verifiers"
NAME = "inner runs"


def inner_runs(case: SuiteCase) -> Iterator[tuple[Job, Path]]:
    """The run that each job of `verifiers` made in its last attempt, where the suite has kept it."""
    for job in case.suite.jobs:
        if job.backend != BACKEND:
            continue
        folder = case.run / attempt_folder(job.id, case.state.job(job.id).attempt)
        found = directory(folder) if folder.is_dir() else None
        if found is not None:
            yield job, found


def ended(run: Path) -> bool:
    """Whether a run inside came to an end of its own, so that it can be audited as a whole."""
    return (run / MANIFEST).is_file()


def inner(case: SuiteCase) -> Check:
    """Each run inside asks what its job says, of the job's lane, with the inputs of the whole run."""
    faults: list[str] = []
    count = 0
    jobs = [job for job in case.suite.jobs if job.backend == BACKEND]
    found = {job.id: run for job, run in inner_runs(case)}
    for job in jobs:
        if job.id not in found:
            if case.begun(job):
                faults.append(f"{job.id}: its folder holds no run")
            continue
        count += 1
        try:
            faults += [f"{job.id}: {each}" for each in _parity(case, job, Case(found[job.id]))]
        except AssayError as error:
            faults.append(f"{job.id}: {error}")
    if faults:
        return judge(NAME, faults, "")
    if count < len(jobs):
        return Check(NAME, "UNKNOWN", (f"{len(jobs) - count} of {len(jobs)} runs inside are not here",))
    said = f"{count} runs inside, each asking what its job says" if jobs else "no job makes a run of its own"
    return Check(NAME, "PASS", (said,))


def _parity(case: SuiteCase, job: Job, run: Case) -> Iterator[str]:
    """How a run inside differs from what its job, its lane and the frozen inputs make of it."""
    plan, target = run.plan, case.suite.target(job)
    arguments: Arguments = arguments_of(case.backend(job), job)
    wanted = drafted(job, target, arguments.runtime or plan.runtime, plan.image or "")
    if isinstance(plan.server, OtherServer):
        lane = case.lane(job, plan.server.base_url)
        server = OtherServer(base_url=lane.base_url, model=lane.model)
        most = min(job.max_concurrency or target.max_concurrency, target.max_concurrency)
        entries = tuple(entry.model_copy(update={"max_concurrent": most}) for entry in wanted.entries)
        wanted = wanted.model_copy(update={"server": server, "entries": entries})
    yield from differences(wanted.model_dump(mode="json"), plan.model_dump(mode="json"), "resolved.json")
    for name, digest in run.before.items():
        if case.before.get(name) != digest:
            yield f"{name} was {digest}, of the whole run {case.before.get(name)}"
