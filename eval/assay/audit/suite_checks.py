"""The audit of a suite's run: is the record whole, and does what was printed follow from what was recorded?

Rows are read again from the evaluators' own records where the suite kept all of them; otherwise the recorded
rows are what there is, and the audit says so. The summary is computed again from the recorded rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from assay.audit.case import SUFFIX
from assay.audit.check import Check, Rule, judge
from assay.backends import registry
from assay.coordinator import frozen
from assay.coordinator.directory import load_suite
from assay.coordinator.events import read_events
from assay.coordinator.frozen import Frozen
from assay.coordinator.results import native_rows
from assay.coordinator.state import State, load_state
from assay.digest import sha256_file
from assay.errors import VerificationError
from assay.files import json_text, read_json
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import compare, load_manifest
from assay.record.results import SAMPLES
from assay.record.suite_results import load_suite_summary, recompute
from assay.record.suite_summary import SuiteSummary
from assay.record.summary import EXIT_CODES
from assay.run.identity import differences
from assay.suite.suite import Suite

WHEN = ("before", "after")
SHOWN = 5


@dataclass(frozen=True)
class SuiteCase:
    """A suite's run under audit; every property raises VerificationError where its file is unfit."""

    run: Path

    @cached_property
    def suite(self) -> Suite:
        """What the run says it asked."""
        return load_suite(self.run)

    @cached_property
    def state(self) -> State:
        """How it ended."""
        return load_state(self.run)

    @cached_property
    def summary(self) -> SuiteSummary:
        """What it printed."""
        return load_suite_summary(self.run)

    @cached_property
    def frozen(self) -> Frozen:
        """The inputs before the first request."""
        return frozen.load(self.run)

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object in a file of the run."""
        try:
            value = read_json(self.run / name)
        except FileNotFoundError:
            raise VerificationError(f"{name} is missing") from None
        except (OSError, ValueError, RecursionError) as error:
            raise VerificationError(f"{name} cannot be read", str(error)) from error
        if not isinstance(value, dict):
            raise VerificationError(f"{name} is not a JSON object")
        return value


def files(case: SuiteCase) -> Check:
    """Every file has the recorded digest, none is missing, none was added."""
    faults = [f"{difference.path}: {difference.what}" for difference in compare(case.run)]
    return judge("files", faults, f"{len(load_manifest(case.run))} files as in {MANIFEST}, none extra")


def signature(case: SuiteCase) -> Check:
    """Whether anybody vouches for the manifest."""
    return Check("signature", "UNKNOWN", ("the run is not signed: nobody vouches for its bytes",))


def configuration(case: SuiteCase) -> Check:
    """The configuration is the one that the run's name carries, and that its inputs were frozen with."""
    faults = []
    digest = case.suite.digest
    suffix = SUFFIX.search(case.run.resolve().name)
    if suffix is None:
        faults.append(f"the directory's name {case.run.name} carries no digest")
    elif suffix["digest"] != digest[:8]:
        faults.append(f"resolved.json has digest {digest[:8]}, the directory's name {suffix['digest']}")
    if case.frozen.inputs.get("suite:configuration") != digest:
        faults.append("resolved.json is not the configuration that the run's inputs were frozen with")
    if [job.id for job in case.suite.jobs] != [job.id for job in case.state.jobs]:
        faults.append("state.json tells of other jobs than resolved.json")
    return judge("configuration", faults, f"resolved.json, digest {digest}")


def state(case: SuiteCase) -> Check:
    """The run came to its end, and its state says the same as its summary."""
    faults = []
    if case.state.phase != case.summary.status:
        faults.append(f"state.json says {case.state.phase}, summary.json {case.summary.status}")
    if case.state.phase not in EXIT_CODES:
        faults.append(f"the run is {case.state.phase}")
    faults += [f"the run itself says: {problem}" for problem in case.state.problems]
    faults += [f"{job.id}: the run itself says: {each}" for job in case.state.jobs for each in job.problems]
    said = f"ended {case.state.ended_at} as {case.state.phase}, taken up again {case.state.resumed} times"
    return judge("state", faults, said)


def events(case: SuiteCase) -> Check:
    """No event is missing, and each attempt of a job has its beginning."""
    faults = []
    begun: dict[str, int] = {}
    count = 0
    for count, row in enumerate(read_events(case.run), start=1):
        if row["n"] != count:
            faults.append(f"event {row['n']} stands where event {count} belongs")
            break
        if row.get("kind") == "job-started":
            begun[str(row.get("job"))] = int(row["attempt"])
    told = {job.id: job.attempt for job in case.state.jobs if job.attempt}
    if not faults and begun != told:
        faults.append(f"the events tell of the attempts {begun}, state.json of {told}")
    return judge("events", faults, f"{count} events, none missing")


def inputs(case: SuiteCase) -> Check:
    """What decides a job's result was the same after it as before the first request, and at each resume."""
    faults = []
    looked = 0
    for path in sorted((case.run / "provenance").glob("inputs.*.json")):
        name = path.name.removeprefix("inputs.").removesuffix(".json")
        if name == frozen.BEFORE:
            continue
        value = case.json(path.relative_to(case.run).as_posix())
        after = Frozen(value["inputs"], value["jobs"])
        faults += [f"{name}: {what}" for what in frozen.differences(case.frozen, after, list(after.jobs))]
        looked += 1
    for job in case.state.jobs:
        if job.phase == "ended" and job.ended is not None:
            path = case.run / "provenance" / f"inputs.after-{job.id}.{job.attempt}.json"
            if not path.is_file():
                faults.append(f"{job.id}: its inputs were not hashed again when it had ended")
    return judge("inputs", faults, f"{len(case.frozen.inputs)} inputs, the same at {looked} later looks")


def pins(case: SuiteCase) -> Check:
    """The run's copies of files that pin something have the digests of its inputs."""
    faults, held = [], 0
    for name, digest in case.frozen.inputs.items():
        path = case.run / "provenance" / "pins" / name.removeprefix("file:")
        if not name.startswith("file:") or not path.is_file():
            continue
        held += 1
        if sha256_file(path) != digest:
            faults.append(f"{path.relative_to(case.run).as_posix()} is not {digest}")
    return judge("pins", faults, f"{held} files that pin something are here as they were")


def targets(case: SuiteCase) -> Check:
    """Each target told the same of itself before and after each job as when the run began."""
    faults, said = [], []
    asked = [target for target in case.suite.targets if target.protocol != "none"]
    for target in asked:
        if not (case.run / "provenance" / "server" / f"first.{target.name}.json").is_file():
            if any(job.attempt for job in case.state.jobs if _job(case, job.id) == target.name):
                faults.append(f"{target.name}: nobody recorded who it was first")
            continue
        first = case.json(f"provenance/server/first.{target.name}.json")
        for job in case.state.jobs:
            if _job(case, job.id) != target.name or job.phase != "ended" or job.ended is None:
                continue
            for when in WHEN:
                found = case.json(f"provenance/server/{job.id}.{job.attempt}.{when}.json")
                pairs: Iterator[tuple[Any, Any]] = zip_longest(
                    first["endpoints"], found["endpoints"], fillvalue={}
                )
                faults += [
                    f"{job.id} {when}: {what}" for one, other in pairs for what in differences(one, other)
                ]
        claimed = {str((each.get("identity") or {}).get("system_fingerprint")) for each in first["endpoints"]}
        said.append(f"{target.name}: {', '.join(sorted(claimed))} (claimed)")
        if claimed == {"None"}:
            said[-1] = f"{target.name} offers no identity"
    if faults:
        return Check("targets", "FAIL", tuple(faults))
    unknown = any("no identity" in line for line in said)
    return Check("targets", "UNKNOWN" if unknown else "PASS", tuple(said) or ("nobody is asked",))


def _job(case: SuiteCase, name: str) -> str:
    return next(job.target for job in case.suite.jobs if job.id == name)


def rows(case: SuiteCase) -> Check:
    """The recorded rows are those that the evaluators' records give, where the suite kept all of these."""
    if case.suite.running.retention != "all":
        kept = case.suite.running.retention
        return Check("rows", "UNKNOWN", (f"of the evaluators' records the suite kept: {kept}",))
    backends = {name: registry.find(name) for name in {job.backend for job in case.suite.jobs}}
    faults = []
    count = 0
    with tempfile.TemporaryDirectory() as scratch, (case.run / SAMPLES).open("rb") as recorded:
        again = native_rows(case.run, case.suite, case.state, backends, Path(scratch))
        for count, (line, row) in enumerate(zip_longest(recorded, again), start=1):
            if row is None or line is None:
                faults.append(f"{SAMPLES} and the evaluators' records differ in number from line {count} on")
                break
            if line != row.model_dump_json().encode("utf-8") + b"\n" and len(faults) < SHOWN:
                faults.append(f"{SAMPLES} line {count} is not what {row.record} says")
    return judge("rows", faults, f"{count} rows, each read again from the evaluators' records")


def summary(case: SuiteCase) -> Check:
    """The summary is what the recorded rows give."""
    faults = []
    if json_text(recompute(case.run).model_dump(mode="json")) != json_text(
        case.summary.model_dump(mode="json")
    ):
        faults.append("summary.json is not what the recorded rows give")
    return judge("summary", faults, "computed again from the recorded rows: the same")


CHECKS: tuple[Rule[SuiteCase], ...] = (
    Rule("signature", "recomputed", signature),
    Rule("files", "recomputed", files),
    Rule("configuration", "recomputed", configuration),
    Rule("state", "measured", state),
    Rule("events", "measured", events),
    Rule("inputs", "measured", inputs),
    Rule("pins", "pinned", pins),
    Rule("targets", "claimed", targets),
    Rule("rows", "recomputed", rows),
    Rule("summary", "recomputed", summary),
)
