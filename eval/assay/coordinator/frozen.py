"""Frozen inputs of a suite: everything that decides a result, by digest, and how two sets of them differ.

They are hashed before the first request, a job's own again when it has ended, and all of them before a resume
goes on. What decides how the coordinator works (`running`) is none of them. A difference is told by a dotted
name, so that a refusal says what was changed and not only that something was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import data, models, pinset, setup
from assay.backends.base import Backend
from assay.digest import combined_digest, sha256_files, tree_digests
from assay.errors import VerificationError
from assay.files import read_json, write_atomic, write_json_atomic
from assay.paths import EVAL, EVALUATORS, ROOT, relative
from assay.run import provenance
from assay.suite.job import Job
from assay.suite.suite import Suite

SCHEMA = "assay/suite-inputs/v1"
BEFORE = "before"
FILES = ("build.lock", "requirements.lock", "flake.lock")
SHOWN_CHARACTERS = 100
LARGEST_COPY_BYTES = 8 << 20


@dataclass(frozen=True)
class Frozen:
    """The inputs of a suite, or of some of its jobs.

    Attributes:
        inputs: SHA-256 by name (`kind:name`).
        jobs: The names that each job depends on, by its id.
    """

    inputs: Mapping[str, str]
    jobs: Mapping[str, Sequence[str]]


def freeze(suite: Suite, backends: Mapping[str, Backend], jobs: Sequence[Job] | None = None) -> Frozen:
    """Hash what decides the results of a suite's jobs.

    Args:
        suite: The suite.
        backends: Those that its jobs name.
        jobs: Only these; None for all.

    Raises:
        PrerequisiteError: an environment, a model or data are missing.
        VerificationError: one of them is not what its lock says, or changed between two jobs' hashing.
    """
    chosen = suite.jobs if jobs is None else jobs
    with ThreadPoolExecutor(2) as pool:
        # Two at a time: one waits for the disk while the other computes.
        common = pool.submit(_common, suite)
        found = list(pool.map(lambda job: _of_job(suite, job, backends[job.backend]), chosen))
    inputs = dict(common.result())
    for one in found:
        for name, digest in one.items():
            if inputs.setdefault(name, digest) != digest:
                raise VerificationError(
                    f"the frozen input {name} changed while it was hashed",
                    f"it was {inputs[name]}, and is {digest}",
                    "leave the checkout alone while a run is live, then run again",
                )
    everywhere = list(common.result())
    names = {job.id: sorted([*everywhere, *one]) for job, one in zip(chosen, found, strict=True)}
    return Frozen(dict(sorted(inputs.items())), names)


def _common(suite: Suite) -> dict[str, str]:
    pins = pinset.current()
    served = sorted({target.serve for target in suite.targets if target.serve is not None})
    named = [pins.file(name) for name in (*FILES, *(["models.lock"] if served else []))]
    named += sorted(EVALUATORS.glob("*.py"))
    named += [pins.directory / "pins.toml"] if pins.directory else []
    inputs = {f"file:{relative(path)}": digest for path, digest in sha256_files(named).items()}
    trees = [EVAL / "assay", EVAL / "scripts"]
    if served:
        trees.append(ROOT / "server")
    inputs |= {f"tree:{relative(tree)}": combined_digest(tree_digests(tree)) for tree in trees}
    for name in served:
        models.verify(name)
        inputs[f"model:{name}"] = models.entry(name).sha256
    inputs["environment:assay"] = setup.check(setup.ENVIRONMENTS["assay"]).digest
    inputs["suite:configuration"] = suite.digest
    return inputs


def _of_job(suite: Suite, job: Job, backend: Backend) -> dict[str, str]:
    inputs = dict(backend.inputs(job, suite.target(job)))
    read = backend.data(job)
    if read:
        lock = pinset.current().file("datasets.lock")
        inputs |= {f"file:{relative(path)}": digest for path, digest in sha256_files([lock]).items()}
    for name in read:
        inputs |= data.frozen(name)
    return inputs


def record(run: Path, when: str, frozen: Frozen) -> None:
    """Write the inputs as they were "before" a run, "after" a job, or at a resume.

    Before a run, files that pin something are copied whole too, so that an auditor needs no checkout.
    """
    folder = provenance.folder(run)
    value = {"schema_version": SCHEMA, "inputs": dict(frozen.inputs), "jobs": dict(frozen.jobs)}
    if when == BEFORE:
        for name in frozen.inputs:
            path = ROOT / name.removeprefix("file:")
            if not name.startswith("file:") or not path.is_file() or path.stat().st_size > LARGEST_COPY_BYTES:
                continue
            target = folder / "pins" / relative(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, path.read_bytes())
    write_json_atomic(folder / f"inputs.{when}.json", value)


def load(run: Path) -> Frozen:
    """The inputs that a run began with.

    Raises:
        VerificationError: they were not recorded, or cannot be read.
    """
    path = run / provenance.FOLDER / f"inputs.{BEFORE}.json"
    try:
        value = read_json(path)
        if value["schema_version"] != SCHEMA:
            raise ValueError(f"schema_version is {value['schema_version']!r}, expected {SCHEMA!r}")
        inputs = {str(name): str(digest) for name, digest in value["inputs"].items()}
        jobs = {str(job): [str(name) for name in names] for job, names in value["jobs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise VerificationError(f"{path} cannot be read", str(error), "start a new run") from error
    return Frozen(inputs, jobs)


def differences(before: Frozen, after: Frozen, jobs: Sequence[str] | None = None) -> list[str]:
    """How the inputs of jobs differ, each with its name; empty when all are the same.

    Args:
        before: Those of the run.
        after: As they are now.
        jobs: Of these jobs alone; None for all of the run's.
    """
    chosen = before.jobs.keys() | after.jobs.keys() if jobs is None else set(jobs)
    names: set[str] = set()
    for side in (before, after):
        for job in chosen:
            names.update(side.jobs.get(job, ()))
    return [
        f"inputs.{name} was {before.inputs.get(name, 'not there')}, is {after.inputs.get(name, 'not there')}"
        for name in sorted(names)
        if before.inputs.get(name) != after.inputs.get(name) and name != "suite:configuration"
    ]


def changed(before: Suite, after: Suite) -> list[str]:
    """How two configurations differ in what decides a result, each with its dotted name."""
    old, new = dict(_leaves("", _named(before))), dict(_leaves("", _named(after)))
    told = []
    for kind in ("targets", "jobs"):
        sides = [{name.split(".")[1] for name in side if name.startswith(f"{kind}.")} for side in (old, new)]
        for one in sorted(sides[0] ^ sides[1]):
            told.append(f"{kind}.{one} was {_there(one in sides[0])}, is {_there(one in sides[1])}")
            for side in (old, new):
                for name in [name for name in side if name.startswith(f"{kind}.{one}.")]:
                    del side[name]
    return told + [
        f"{name} was {_short(old.get(name))}, is {_short(new.get(name))}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def _there(there: bool) -> str:
    return "there" if there else "not there"


def _named(suite: Suite) -> dict[str, Any]:
    """A configuration with targets and jobs by name, but for what decides nothing: how it is run and told."""
    value = suite.model_dump(mode="json", exclude={"running", "description"})
    value["targets"] = {target["name"]: target for target in value["targets"]}
    order = [job["id"] for job in value["jobs"]]
    value["jobs"] = {job["id"]: job for job in value["jobs"]}
    return {**value, "order": order}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), item)
    else:
        yield name, value


def _short(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
