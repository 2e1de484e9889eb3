"""A suite's run: only what a run writes, in its form, and one story told by all of its dates.

What `assay.audit.form_checks` and `story_checks` ask of a profile's run; evaluators' own folders, and what
their children were told, are held to their own checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from assay.audit.check import Check, judge
from assay.audit.form_checks import OWN, scan, sorted_manifest
from assay.audit.story_checks import SHOWN, SLACK, parsed
from assay.audit.suite_case import SuiteCase
from assay.coordinator.directory import ANSWERS, attempt_folder, journal
from assay.coordinator.events import NAME as EVENTS
from assay.coordinator.events import read_events
from assay.coordinator.targets import FIRST
from assay.gateway.kept import kept_answers
from assay.plan import NAME as RESOLVED
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import OUTSIDE
from assay.record.results import SUMMARY
from assay.record.retention import KEPT
from assay.run.state import NAME as STATE
from assay.run.state import STAMP

FACTS = ("source.json", "suite.toml", "declared.json", "environment.json", "worktree.json")


def form(case: SuiteCase) -> Check:
    """Every file is one that a run writes, under a plain name, and in the form in which it is written."""
    native = tuple(name for job in case.state.jobs for name in _native(job.id, job.attempt))
    count, faults = scan(case.run, native, set(layout(case)), partial(_ordered, case))
    return judge("form", faults, f"{count} files, each under its name and in its form")


def _native(job: str, attempts: int) -> Iterator[str]:
    """What the names of a job's own records, and of what its children were told, begin with."""
    yield f"provenance/launch/{job}/"
    yield from (f"{attempt_folder(job, number)}/" for number in range(1, attempts + 1))


def layout(case: SuiteCase) -> Iterator[str]:
    """The files that the run of this suite may hold outside of its evaluators' own folders."""
    yield from OWN | OUTSIDE
    lives = range(1, case.state.resumed + 2)
    yield from (f"provenance/{name}" for name in FACTS)
    yield "provenance/inputs.before.json"
    yield from (f"provenance/inputs.resume-{life}.json" for life in lives)
    yield from (f"provenance/pins/{name.removeprefix('file:')}" for name in case.before)
    for target in case.suite.targets:
        yield f"provenance/server/{FIRST}.{target.name}.json"
        yield from (f"servers/{target.name}.{life}.log" for life in lives)
    for job in case.state.jobs:
        yield f"{ANSWERS}/{job.id}.jsonl"
        yield f"{job.id}/{KEPT}"
        for attempt in range(1, job.attempt + 1):
            yield f"{ANSWERS}/{job.id}.not-used-{attempt}.jsonl"
            yield f"provenance/inputs.after-{job.id}.{attempt}.json"
            yield from (f"provenance/server/{job.id}.{attempt}.{when}.json" for when in ("before", "after"))


def _ordered(case: SuiteCase, name: str, value: Any) -> Any:
    """The value with its keys in the order of its model, where its file has one; else as they stand."""
    if name == MANIFEST:
        return sorted_manifest(case.run)
    models = {RESOLVED: case.suite, STATE: case.state, SUMMARY: case.summary}
    return models[name].model_dump(mode="json") if name in models else value


def times(case: SuiteCase) -> Check:
    """What happened later was dated later: the run, its events, its jobs, the answers that it kept."""
    state, faults = case.state, []
    begin, end = parsed(state.started_at), parsed(state.ended_at)
    if begin is None or end is None:
        return Check("times", "FAIL", (f"state.json says {state.started_at} to {state.ended_at}",))
    stamp = STAMP.search(case.run.resolve().name)
    if stamp is None:
        faults.append(f"the directory's name {case.run.name} carries no time")
    else:
        named = datetime.strptime(stamp["at"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(begin - named) > SLACK:
            faults.append(f"the directory's name says {stamp['at']}, state.json {state.started_at}")
    last = begin
    for what, text in _dates(case):
        at = _moment(text)
        if at is None or not begin - SLACK <= at <= end + SLACK:
            faults.append(f"{what} is dated {text}, outside of {state.started_at} to {state.ended_at}")
        elif what.startswith(EVENTS):
            if at < last - SLACK:
                faults.append(f"{what} is dated {text}, before what happened before it")
            last = at
    lasted = (end - begin).total_seconds()
    if state.seconds > lasted + SLACK.total_seconds():
        faults.append(f"state.json counts {state.seconds} s, from started_at to ended_at it is {lasted} s")
    said = f"from {state.started_at} to {state.ended_at}, in one order"
    return judge("times", faults[:SHOWN], said)


def _moment(text: str) -> datetime | None:
    """A time in ISO 8601 with its zone, which events and journals write in two ways; else None."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else at


def _dates(case: SuiteCase) -> Iterator[tuple[str, str]]:
    """Every date that the run wrote; the events' in their order."""
    for row in read_events(case.run):
        yield f"{EVENTS} {row['n']} ({row.get('kind')})", str(row.get("at"))
    for job in case.state.jobs:
        for name, value in (("started_at", job.started_at), ("ended_at", job.ended_at)):
            if value is not None:
                yield f"state.json {job.id} {name}", value
        path = journal(case.run, job.id)
        if path.is_file():
            for kept in kept_answers(path):
                yield f"{ANSWERS}/{job.id}.jsonl answer {kept.number}", kept.at
