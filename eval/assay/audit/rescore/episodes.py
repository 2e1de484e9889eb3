"""Verifiers 0.3 and 0.4: traces scored again by upstream's own replay (`eval/evaluators/rescore_v1.py`).

A trace carries its task's data, the gold answer among them, so these are first held against the digest that
the row has, which the other checks hold against what the taskset makes. A scorer that works in a sandbox gets
the run's own image, where the answers are all that it reads; what a harness with tools left in its sandbox,
no record keeps.
"""

from __future__ import annotations

import hashlib
import json
import os
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
    faults: list[str] = []
    recorded: dict[str, Score] = {}
    for part in entry.parts:
        ids, odd = identified(case, part)
        faults += odd
        for row in dialects.of(case.plan.dialect).rows(case.run / part.folder):
            if row.line in ids:
                recorded[place(part, row.line)] = of_row(row)

    def again() -> Scores:
        return {key: score for part in entry.parts for key, score in replayed(case, entry, part).items()}

    return held(name, recorded, again, "upstream's own replay", tuple(faults))


def place(part: Part, line: int) -> str:
    """Where a trace's score stands."""
    return f"{part.folder}/{TRACES} line {line}"


def identified(case: Case, part: Part) -> tuple[dict[int, str], list[str]]:
    """The last trace of each line that has one, by its id, and what is odd about the lines' tasks."""
    ids: dict[int, str] = {}
    faults = []
    seen: set[str] = set()
    for episode in read_episodes(case.run / part.folder / TRACES):
        task = episode.value["task"]
        tasks = [task, *(trace.get("task") for trace in episode.traces)]
        if any(each["hash"] != task["hash"] or digest(each["data"]) != task["hash"] for each in tasks):
            faults.append(f"{place(part, episode.line)}: its task's data are not those of its digest")
        for trace in episode.traces:
            if trace["id"] in seen:
                faults.append(f"{place(part, episode.line)}: trace {trace['id']} stands there once more")
            seen.add(trace["id"])
        if episode.traces:
            ids[episode.line] = episode.traces[-1]["id"]
    return ids, faults


def digest(data: Any) -> str:
    """The digest that Verifiers gives a task's data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def replayed(case: Case, entry: EntryPlan, part: Part) -> Scores:
    """What the traces of a part score now; PrerequisiteError for what it takes and is not here."""
    with private() as scratch:
        said = replay(case, entry, part, scratch, None)
        if said["needs"]:
            said = replay(case, entry, part, scratch, sandbox_of(case, entry, said["needs"]))
        if said["needs"]:
            raise PrerequisiteError(f"{entry.name}: {'; '.join(said['needs'])}")
        return found(case, part, scratch.folder("out") / "scored", set(said["unread"]))


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
    job = {
        "record": str((case.run / part.folder / TRACES).resolve()),
        "taskset": value(speech.native(entry.launch[SHARED], entry.launch[ENTRY]), "env", "taskset"),
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


def found(case: Case, part: Part, folder: Path, unread: set[str]) -> Scores:
    """The replay's scores, by the places of the traces in the run's record."""
    ids, _ = identified(case, part)
    reader = dialects.of(case.plan.dialect)
    try:
        by_line = {row.line: of_row(row) for row in reader.rows(folder)}
        now = {episode.traces[-1]["id"]: by_line[episode.line] for episode in read_episodes(folder / TRACES)}
    except KeyError as error:
        raise VerificationError(f"the replay of {part.folder} lacks {error}") from error
    lost = Score({}, "the taskset cannot read its task's data")
    return {
        place(part, line): lost if trace in unread else now[trace]
        for line, trace in ids.items()
        if trace in now
    }
