"""Verifiers 0.3 and 0.4: traces scored again by upstream's own replay (`eval/evaluators/rescore_v1.py`).

A trace carries its task's data, the gold answer among them, so these are held against the digest that the
taskset gives them; one that has others is not scored. A scorer that works in a sandbox gets
the run's own image, where the answers are all that it reads; what a harness with tools left in its sandbox,
no record keeps.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from assay import dialect, sandbox
from assay.audit.case import Case
from assay.audit.check import Check
from assay.audit.rescore.child import Scorer, private
from assay.audit.rescore.scores import Score, Scores, held, of_row
from assay.dialect.base import ENTRY, SHARED
from assay.dialect.layered import value
from assay.errors import PrerequisiteError, VerificationError
from assay.evaluator import load_evaluator
from assay.files import read_json, write_json_atomic
from assay.plan import EntryPlan, Part
from assay.record import dialects
from assay.record.episodes import TRACES, read_episodes
from assay.run import containers, native
from assay.run.client import write_client
from assay.run.native import Scratch

PROGRAM = "rescore_v1.py"
TOOLLESS = "null"
AT_ONCE = 16
SANDBOXES_AT_ONCE = 2


def check(case: Case, entry: EntryPlan, name: str) -> Check:
    """The entry's check (see `entries.check`)."""
    recorded: dict[str, Score] = {}
    for part in entry.parts:
        ids = identified(case, part)
        for row in dialects.of(case.plan.dialect).rows(case.run / part.folder):
            if row.line in ids:
                recorded[place(part, row.line)] = of_row(row)
    faults: list[str] = []

    def again() -> Scores:
        faults.clear()
        return {
            key: score for part in entry.parts for key, score in replayed(case, entry, part, faults).items()
        }

    return held(name, recorded, again, "upstream's own replay", faults)


def place(part: Part, line: int) -> str:
    """Where a trace's score stands."""
    return f"{part.folder}/{TRACES} line {line}"


def identified(case: Case, part: Part) -> dict[int, str]:
    """The last trace of each line that has one, by its id; VerificationError where two have one."""
    ids: dict[int, str] = {}
    seen: set[str] = set()
    for episode in read_episodes(case.run / part.folder / TRACES):
        for trace in episode.traces:
            if trace["id"] in seen:
                raise VerificationError(
                    f"{place(part, episode.line)}: trace {trace['id']} is there once more"
                )
            seen.add(trace["id"])
        if episode.traces:
            ids[episode.line] = str(episode.traces[-1]["id"])
    return ids


def replayed(case: Case, entry: EntryPlan, part: Part, faults: list[str]) -> Scores:
    """What the traces of a part score now; what is wrong with their tasks is added to the faults.

    Raises:
        PrerequisiteError: for what it takes and is not here.
    """
    with private() as scratch:
        said = replay(case, entry, part, scratch, None)
        if said["needs"]:
            said = replay(case, entry, part, scratch, sandbox_of(case, entry, said["needs"]))
        if said["needs"]:
            raise PrerequisiteError(f"{entry.name}: {'; '.join(said['needs'])}")
        ids = identified(case, part)
        forged = {place(part, line) for line, trace in ids.items() if trace in said["forged"]}
        faults += [f"{key}: its task's data are not what the taskset makes" for key in sorted(forged)]
        now = found(case, part, ids, scratch.folder("out") / "scored", set(said["unread"]))
        return {key: score for key, score in now.items() if key not in forged}


def replay(
    case: Case, entry: EntryPlan, part: Part, scratch: Scratch, runtime: dict[str, Any] | None
) -> dict[str, Any]:
    """Run the program, in a sandbox where one is given, and return what it says."""
    label = f"{scratch.path.name}-{os.getpid()}"
    evaluator = load_evaluator(case.plan.evaluator)
    said = native.environment(case.plan, scratch, None, label) | {"TMPDIR": str(scratch.temporary())}
    if runtime is not None:
        bounding = write_client(scratch.folder("bin"), label, case.plan.docker)
        said["PATH"] = os.pathsep.join([str(bounding.parent), said["PATH"]])
    speech = dialect.of(case.plan.dialect)
    # Our own tasksets tell no digest of a task's data, and need no data to make it.
    hashes = {task.key: task.task_hash for task in case.tasks[entry.name].tasks}
    job = {
        "record": str((case.run / part.folder / TRACES).resolve()),
        "taskset": value(speech.native(entry.launch[SHARED], entry.launch[ENTRY]), "env", "taskset"),
        "hashes": None if None in hashes.values() else hashes,
        "runtime": runtime,
        "concurrent": AT_ONCE if runtime is None else SANDBOXES_AT_ONCE,
        "out": str(scratch.folder("out")),
    }
    told = scratch.path / "job.json"
    write_json_atomic(told, job)
    try:
        Scorer(evaluator, PROGRAM, said, scratch.folder("work")).run([told])
    finally:
        if runtime is not None:
            containers.sweep(label)
    answer = read_json(scratch.folder("out") / "said.json")
    return dict(answer)


def sandbox_of(case: Case, entry: EntryPlan, needs: list[str]) -> dict[str, Any]:
    """The run's own sandbox as a native table; PrerequisiteError where it is not to be had, or of no use."""
    plan = case.plan
    why = "; ".join(needs)
    harness = value(plan.native(entry), "env", "agent", "harness", "id")
    if harness != TOOLLESS:
        raise PrerequisiteError(
            f"{entry.name}: {why}", f"the harness {harness} worked in that sandbox, which no record keeps"
        )
    if plan.image is None:
        raise PrerequisiteError(f"{entry.name}: {why}", "the run had none")
    image = sandbox.check(plan.evaluator)
    if image.image_id != plan.image:
        raise PrerequisiteError(
            f"{entry.name}: {why}", f"the run's was {plan.image}, and {image.image_id} is here"
        )
    return {"type": "docker", "image": plan.image, "allow": [], **plan.docker.native()}


def found(case: Case, part: Part, ids: Mapping[int, str], folder: Path, unread: Collection[str]) -> Scores:
    """The replay's scores, by the places of the traces in the run's record."""
    by_line = {row.line: of_row(row) for row in dialects.of(case.plan.dialect).rows(folder)}
    now = {episode.traces[-1]["id"]: by_line[episode.line] for episode in read_episodes(folder / TRACES)}
    lost = Score({}, "the taskset cannot read its task's data")
    return {
        place(part, line): lost if trace in unread else now[trace]
        for line, trace in ids.items()
        if trace in now
    }
