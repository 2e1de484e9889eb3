"""Is the record whole, and does what was printed follow from what was recorded?"""

from __future__ import annotations

from typing import Any

from assay.audit.case import SUFFIX, Case, Recorded
from assay.audit.check import Check, judge
from assay.files import json_text
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import compare, load_manifest
from assay.record.render import markdown
from assay.record.results import MARKDOWN, SAMPLES, SUMMARY, left_out, samples_bytes, summarise
from assay.record.summary import EXIT_CODES


def files(case: Recorded) -> Check:
    """Every file has the recorded digest, none is missing, none was added."""
    faults = [f"{difference.path}: {difference.what}" for difference in compare(case.run)]
    return judge("files", faults, f"{len(load_manifest(case.run))} files as in {MANIFEST}, none extra")


def plan(case: Case) -> Check:
    """The resolved configuration is the one the run's name carries, and the one that was launched."""
    faults = []
    suffix = SUFFIX.search(case.run.resolve().name)
    if suffix is None:
        faults.append(f"the directory's name {case.run.name} carries no plan digest")
    elif suffix["digest"] != case.plan.digest[:8]:
        faults.append(
            f"resolved.json has digest {case.plan.digest[:8]}, the directory's name {suffix['digest']}"
        )
    for entry in case.plan.entries:
        for name, text in entry.launch.items():
            launched = case.provenance / "launch" / entry.name / name
            if not launched.is_file() or launched.read_bytes() != text.encode("utf-8"):
                faults.append(f"provenance/launch/{entry.name}/{name} is not the text in resolved.json")
    return judge("plan", faults, f"resolved.json, digest {case.plan.digest}")


def state(case: Case) -> Check:
    """The run came to its end, and its state says the same as its summary."""
    faults = []
    if case.state.phase != case.summary.status:
        faults.append(f"state.json says {case.state.phase}, summary.json {case.summary.status}")
    if case.state.phase not in EXIT_CODES:
        faults.append(f"the run is {case.state.standing(case.run)}")
    told = [(entry.name, entry.planned, entry.finished) for entry in case.state.entries]
    found = [(entry.name, entry.planned, case.finished(entry)) for entry in case.plan.entries]
    if told != found:
        faults.append(f"state.json tells (entry, planned, finished) {told}, the records {found}")
    faults += [f"the run itself says: {problem}" for problem in case.summary.problems]
    return judge("state", faults, f"ended {case.state.ended_at} as {case.state.phase}")


def rows(case: Case) -> Check:
    """There is a row for each rollout of each planned task, and no other."""
    samples, faults = case.derived
    faults = list(faults)
    for entry in case.plan.entries:
        listed = len(case.tasks[entry.name].tasks)
        if listed != entry.tasks:
            faults.append(f"{entry.name}: provenance lists {listed} tasks, the plan {entry.tasks}")
        if sum(row.entry == entry.name for row in samples) != entry.planned:
            faults.append(f"{entry.name}: the rows are not {entry.tasks} tasks x {entry.rollouts} rollouts")
    missing = [f"{row.entry}/{row.task_key}" for row in samples if row.status == "missing"]
    if missing and case.summary.status == "done":
        faults.append(f"rows are missing though the run says done: {', '.join(missing)}")
    if case.summary.status != "cancelled" and not case.summary.problems:
        ended = {entry.name for entry in case.state.entries if entry.native_exit_code == 0}
        faults += left_out(case.plan, samples, ended)
    return judge("rows", faults, f"{len(samples)} rows = tasks x rollouts; {len(missing)} missing, as told")


def samples(case: Case) -> Check:
    """`samples.jsonl` follows, byte for byte, from the native records."""
    expected = samples_bytes(case.derived[0]).split(b"\n")
    path = case.run / SAMPLES
    actual = path.read_bytes().split(b"\n") if path.is_file() else []
    faults = [
        f"{SAMPLES} line {number}: not what the native record gives"
        for number in range(1, max(len(expected), len(actual)) + 1)
        if expected[number - 1 : number] != actual[number - 1 : number]
    ]
    return judge("samples", faults, "computed again from the native records: the same bytes")


def summary(case: Case) -> Check:
    """`summary.json` and `summary.md` follow from the samples: counts, scores, intervals, baselines."""
    recorded = case.summary
    again = summarise(
        case.plan,
        case.tasks,
        case.derived[0],
        problems=recorded.problems,
        notes=recorded.notes,
        cancelled=recorded.status == "cancelled",
        server=recorded.server,
    ).model_dump(mode="json")
    faults = differences(again, recorded.model_dump(mode="json"), SUMMARY)
    if (case.run / SUMMARY).read_text("utf-8") != json_text(recorded.model_dump(mode="json")):
        faults.append(f"{SUMMARY} is not in the form it is written in")
    if not (case.run / MARKDOWN).is_file() or (case.run / MARKDOWN).read_text("utf-8") != markdown(recorded):
        faults.append(f"{MARKDOWN} does not show what {SUMMARY} holds")
    return judge("summary", faults, "counts, scores and intervals computed again: the same")


def differences(expected: Any, actual: Any, path: str) -> list[str]:
    """Every leaf at which two JSON values differ, by its path, e.g. `summary.json.families[0].score`."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        found = []
        for key in sorted(expected.keys() | actual.keys()):
            if key not in expected or key not in actual:
                found.append(f"{path}.{key}: {'not expected' if key in actual else 'missing'}")
            else:
                found += differences(expected[key], actual[key], f"{path}.{key}")
        return found
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = zip(expected, actual, strict=True)
        return [line for index, pair in enumerate(pairs) for line in differences(*pair, f"{path}[{index}]")]
    if expected == actual and type(expected) is type(actual):
        return []
    return [f"{path}: recorded {actual!r}, computed {expected!r}"]
