"""The record of a suite's run: is it whole, and does what was printed follow from what was recorded?

Rows are read again from the evaluators' own records where the suite kept all of them; otherwise the recorded
rows are what there is, and the audit says so. The summary is computed again from the same records, what the
evaluators themselves report and what only state and provenance tell included.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from assay.audit.case import SUFFIX
from assay.audit.check import Check, judge
from assay.audit.record_checks import differences
from assay.audit.suite_case import SuiteCase
from assay.coordinator.events import read_events
from assay.coordinator.results import job_records, native_rows
from assay.coordinator.targets import FIRST
from assay.digest import sha256_bytes
from assay.errors import ConfigurationError
from assay.files import json_text
from assay.record.dataset_result import JobRecord
from assay.record.results import MARKDOWN, SAMPLES, SUMMARY
from assay.record.suite_render import markdown
from assay.record.suite_results import recorded, summarise_suite
from assay.record.summary import EXIT_CODES
from assay.suite.again import again

SHOWN = 5


def configuration(case: SuiteCase) -> Check:
    """What was asked is what the suite's file says, what the run's name carries, and what was frozen."""
    faults = []
    digest = case.suite.digest
    suffix = SUFFIX.search(case.run.resolve().name)
    if suffix is None:
        faults.append(f"the directory's name {case.run.name} carries no digest")
    elif suffix["digest"] != digest[:8]:
        faults.append(f"resolved.json has digest {digest[:8]}, the directory's name {suffix['digest']}")
    if case.before.get("suite:configuration") != digest:
        faults.append("resolved.json is not the configuration that the run's inputs were frozen with")
    if [job.id for job in case.suite.jobs] != [job.id for job in case.state.jobs]:
        faults.append("state.json tells of other jobs than resolved.json")
    faults += _declared(case)
    return judge("configuration", faults, f"resolved.json, digest {digest}")


def _declared(case: SuiteCase) -> list[str]:
    """How the suite differs from what its file says, as the run kept it."""
    source = case.json(case.provenance / "source.json")
    reference, path = str(source["reference"]), case.provenance / "suite.toml"
    text = path.read_bytes() if path.is_file() else b""
    if sha256_bytes(text) != source["text_sha256"]:
        return ["provenance/suite.toml is not the text that was read, by provenance/source.json"]
    try:
        declared = again(reference, text.decode("utf-8"))
    except ConfigurationError as error:
        return [f"provenance/suite.toml gives no suite: {error.what}: {error.why}"]
    if not text:
        # Of a profile, who typed the command named the key's file.
        files = {target.name: target.key_file for target in case.suite.targets}
        targets = [
            target.model_copy(update={"key_file": files.get(target.name)}) for target in declared.targets
        ]
        declared = declared.model_copy(update={"targets": tuple(targets)})
    return differences(declared.model_dump(mode="json"), case.suite.model_dump(mode="json"), "resolved.json")


def state(case: SuiteCase) -> Check:
    """The run came to its end, and its state says the same as its summary."""
    faults = []
    if case.state.phase != case.summary.status:
        faults.append(f"state.json says {case.state.phase}, summary.json {case.summary.status}")
    if case.state.phase not in EXIT_CODES:
        faults.append(f"the run is {case.state.phase}")
    if case.summary.seconds is not None and case.summary.seconds > case.state.seconds:
        faults.append(f"summary.json tells {case.summary.seconds} s, state.json {case.state.seconds} s")
    faults += [f"the run itself says: {problem}" for problem in case.state.problems]
    faults += [f"{job.id}: the run itself says: {each}" for job in case.state.jobs for each in job.problems]
    said = f"ended {case.state.ended_at} as {case.state.phase}, taken up again {case.state.resumed} times"
    return judge("state", faults, said)


def events(case: SuiteCase) -> Check:
    """No event is missing, none is earlier than the one before, and they tell of what the state tells of."""
    faults = []
    begun: dict[str, int] = {}
    ended: dict[str, tuple[object, ...]] = {}
    last: dict[str, object] = {}
    told_of: Counter[tuple[str, str]] = Counter()
    count, before, status = 0, "", None
    for count, row in enumerate(read_events(case.run), start=1):
        if row["n"] != count:
            faults.append(f"event {row['n']} stands where event {count} belongs")
            break
        if str(row["at"]) < before:
            faults.append(f"event {count} is earlier than the one before")
        before = str(row["at"])
        kind, job = str(row.get("kind")), str(row.get("job"))
        told_of[(kind, job)] += 1
        if kind == "job-started":
            begun[job] = int(row["attempt"])
        elif kind == "job-ended":
            ended[job] = tuple(row.get(name) for name in ("attempt", "phase", "verdict", "budget", "error"))
            last[job] = row.get("spent")
        elif kind == "run-ended":
            status = row.get("status")
    told = {job.id: job.attempt for job in case.state.jobs if job.attempt}
    if not faults and begun != told:
        faults.append(f"the events tell of the attempts {begun}, state.json of {told}")
    if not faults:
        for each in case.state.jobs:
            if each.id not in ended:
                faults += [f"{each.id}: no event says that it ended"] if each.attempt else []
                continue
            if ended[each.id] != (each.attempt, each.phase, each.verdict, each.budget, each.error):
                faults.append(f"{each.id}: the events say it ended as {ended[each.id]}, state.json otherwise")
            if last[each.id] != each.spent.model_dump():
                faults.append(f"{each.id}: the events say it spent {last[each.id]}, state.json otherwise")
            for event, name in (("request-failed", "errors"), ("request-retried", "retries")):
                found = told_of[(event, each.id)]
                # A run that was killed may have told of one that its state does not count.
                if found != getattr(each.spent, name) and not case.state.resumed:
                    faults.append(f"{each.id}: {found} events {event}, state.json tells {name} otherwise")
        if status != case.state.phase:
            faults.append(f"the events say that the run ended as {status}, state.json {case.state.phase}")
    return judge("events", faults, f"{count} events, none missing")


def rows(case: SuiteCase) -> Check:
    """The recorded rows are those that the evaluators' records give, where the suite kept all of these."""
    if case.suite.running.retention != "all":
        kept = case.suite.running.retention
        return Check("rows", "UNKNOWN", (f"of the evaluators' records the suite kept: {kept}",))
    faults = []
    count = 0
    with tempfile.TemporaryDirectory() as scratch, (case.run / SAMPLES).open("rb") as recorded_rows:
        found = native_rows(case.run, case.suite, case.state, case.backends, Path(scratch))
        for count, (line, row) in enumerate(zip_longest(recorded_rows, found), start=1):
            if row is None or line is None:
                faults.append(f"{SAMPLES} and the evaluators' records differ in number from line {count} on")
                break
            if line != row.model_dump_json().encode("utf-8") + b"\n" and len(faults) < SHOWN:
                faults.append(f"{SAMPLES} line {count} is not what {row.record} says")
    return judge("rows", faults, f"{count} rows, each read again from the evaluators' records")


def summary(case: SuiteCase) -> Check:
    """The summary is what the evaluators' records, the state and the servers' records give."""
    known = recorded(case.run)
    removed = {result.job for result in case.summary.jobs if result.retained.acted}
    with tempfile.TemporaryDirectory() as scratch:
        records = job_records(
            case.run,
            case.suite,
            case.state,
            case.backends,
            {},
            Path(scratch),
            {name: record for name, record in known.items() if name in removed},
        )
        computed = summarise_suite(
            case.suite,
            [_planned(record, known) for record in records],
            case.state.problems,
            servers=_servers(case),
            seconds=case.summary.seconds,
        )
    kept = {result.job: result.retained for result in case.summary.jobs}
    jobs = tuple(job.model_copy(update={"retained": kept[job.job]}) for job in computed.jobs)
    found = computed.model_copy(update={"jobs": jobs}).model_dump(mode="json")
    actual = case.summary.model_dump(mode="json")
    faults = differences(found, actual, SUMMARY)
    if (case.run / SUMMARY).read_text("utf-8") != json_text(actual):
        faults.append(f"{SUMMARY} is not in the form it is written in")
    path = case.run / MARKDOWN
    if not path.is_file() or path.read_text("utf-8") != markdown(case.summary):
        faults.append(f"{MARKDOWN} does not show what {SUMMARY} holds")
    said = "counts, scores and intervals computed again: the same"
    if removed:
        said += (
            f"; the evaluators' own figures of {', '.join(sorted(removed))} are claimed, their records gone"
        )
    return judge("summary", faults, said)


def _planned(record: JobRecord, known: Mapping[str, JobRecord]) -> JobRecord:
    """The record with the recorded number of planned rollouts, where only data that are not here tell it."""
    before = known.get(record.job.id)
    return record if record.planned is not None or before is None else replace(record, planned=before.planned)


def _servers(case: SuiteCase) -> dict[str, str | None]:
    """The fingerprint that each target claimed when the run began."""
    found: dict[str, str | None] = {}
    for target in case.suite.targets:
        path = case.provenance / "server" / f"{FIRST}.{target.name}.json"
        if not path.is_file():
            continue
        identities = [each.get("identity") or {} for each in case.json(path)["endpoints"]]
        claimed = (each.get("system_fingerprint") for each in identities)
        found[target.name] = next((each for each in claimed if isinstance(each, str) and each), None)
    return found
