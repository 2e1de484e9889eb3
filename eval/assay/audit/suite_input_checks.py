"""Did what decides a suite's results stay as it was, is it what the locks pin, and what this checkout has?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from assay import models
from assay.audit.check import Check, judge
from assay.audit.input_checks import source_faults
from assay.audit.pinned_checks import data_faults, told
from assay.audit.suite_case import SuiteCase
from assay.backends import places
from assay.coordinator import frozen
from assay.coordinator.frozen import Frozen
from assay.digest import combined_digest, sha256_file, tree_digests
from assay.errors import AssayError
from assay.paths import ROOT
from assay.pinset import PRODUCTION
from assay.run.freeze import names


def unchanged(case: SuiteCase) -> Check:
    """What decides a job's result was the same after it as before the first request, and at each resume."""
    faults = []
    looked = 0
    for path in sorted(case.provenance.glob("inputs.*.json")):
        name = path.name.removeprefix("inputs.").removesuffix(".json")
        if name == frozen.BEFORE:
            continue
        value = case.json(path)
        after = Frozen(value["inputs"], value["jobs"])
        faults += [f"{name}: {what}" for what in frozen.differences(case.frozen, after, list(after.jobs))]
        looked += 1
    for job in case.state.jobs:
        if job.phase == "ended" and job.ended is not None:
            path = case.provenance / f"inputs.after-{job.id}.{job.attempt}.json"
            if not path.is_file():
                faults.append(f"{job.id}: its inputs were not hashed again when it had ended")
    again = any(job.attempt > 1 for job in case.state.jobs)
    if again and not list(case.provenance.glob("inputs.resume-*.json")):
        faults.append("the run was taken up again, and its inputs were not hashed before")
    return judge("inputs unchanged", faults, f"{len(case.before)} inputs, the same at {looked} later looks")


def pins(case: SuiteCase) -> Check:
    """The pins are production's, the run's copies are what was frozen, and what was served is pinned."""
    faults = []
    if case.suite.pins != PRODUCTION:
        faults.append(f'the pin set is "{case.suite.pins}": only {PRODUCTION} is what a suite stands for')
    copied = names(case.before, "file")
    for name in copied:
        if name.rpartition("/")[2] == "pins.toml" and case.suite.pins == PRODUCTION:
            faults.append(f"file:{name} was frozen, so another pin set was in force")
        copy = case.provenance / "pins" / name
        if not copy.is_file():
            faults.append(f"provenance/pins/{name} is missing")
        elif sha256_file(copy) != case.before[f"file:{name}"]:
            faults.append(f"provenance/pins/{name} is not the file that was frozen")
    lock = case.pin("models.lock")
    known = {} if lock is None else models.pins(lock)
    for name in sorted({target.serve for target in case.suite.targets if target.serve is not None}):
        pinned = known[name].sha256 if name in known else None
        if case.before.get(f"model:{name}") != pinned or pinned is None:
            faults.append(f"model:{name} was {case.before.get(f'model:{name}')}, pinned {pinned}")
    return judge("pins", faults, f"{len(copied)} files that pin something are here as they were frozen")


def task_data(case: SuiteCase) -> Check:
    """The frozen task data are those that the lock pins; data of this machine are the ones that were read."""
    wanted = {name for job in case.suite.jobs for name in case.backend(job).data(job)}
    faults, absent = data_faults(case, sorted(wanted))
    frozen_sets = {path.partition("/")[0] for path in names(case.before, "data")}
    faults += [f"data:{name} was frozen, but no job reads it" for name in sorted(frozen_sets - wanted)]
    own = names(case.before, "local")
    for place in own:
        if not (ROOT / place).exists():
            absent.append(f"local:{place}: no lock pins it, and it is not on this machine")
        elif places.digests([place]) != {f"local:{place}": case.before[f"local:{place}"]}:
            absent.append(f"local:{place}: no lock pins it, and what lies there now is something else")
    count = len(names(case.before, "data"))
    return told(
        "data", faults, absent, (f"{count} file(s) as datasets.lock pins them, {len(own)} of the user",)
    )


def checkout(case: SuiteCase) -> Check:
    """Locks, programs and sources of this checkout are the frozen ones, and no input was left out."""
    faults, absent = [], []
    for name in names(case.before, "file"):
        path = ROOT / name
        if not path.is_file() or sha256_file(path) != case.before[f"file:{name}"]:
            faults.append(f"{name} of this checkout is not the one the run froze")
    for name in names(case.before, "tree"):
        path = ROOT / name
        if not path.is_dir() or combined_digest(tree_digests(path)) != case.before[f"tree:{name}"]:
            faults.append(f"{name}/ of this checkout is not the one the run froze")
    odd, lacking = source_faults(case, names(case.before, "source"))
    faults += odd
    absent += lacking
    for job, here in case.inputs_here.items():
        if isinstance(here, AssayError):
            absent.append(f"{job}: what it should have frozen cannot be told here: {here.what}")
        else:
            faults += _against(case, job, here)
    if faults:
        commit = case.json(case.provenance / "worktree.json").get("commit")
        faults.append(f"to audit with what the run froze: git checkout {commit}")
    return told(
        "checkout", faults, absent, ("locks, programs and sources of this checkout are the frozen ones",)
    )


def _against(case: SuiteCase, job: str, here: Mapping[str, str]) -> Iterator[str]:
    """How what a job depends on in this checkout differs from what was frozen of it."""
    known = set(case.frozen.jobs.get(job, ()))
    for name in sorted(here.keys() - known):
        yield f"{job}: {name} was not frozen"
    for name in sorted(here.keys() & known):
        # What is built for a machine, or lies on it, is looked at by checks of its own.
        if not name.startswith(("environment:", "sandbox:", "data:", "local:")) and here[
            name
        ] != case.before.get(name):
            yield f"{job}: {name} of this checkout is not the one the run froze"
