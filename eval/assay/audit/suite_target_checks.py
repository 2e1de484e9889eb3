"""Who answered a suite: the same throughout, the one that was named, and what the summary says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from assay.audit.check import Check
from assay.audit.pinned_checks import value_at
from assay.audit.suite_case import SuiteCase
from assay.coordinator.targets import FIRST
from assay.run.identity import differences
from assay.run.provenance import DECLARED
from assay.suite.target import Target

WHEN = ("before", "after")


def targets(case: SuiteCase) -> Check:
    """Each target told the same of itself before and after each job as when the run began."""
    faults, said = [], []
    for target in case.suite.targets:
        if target.protocol == "none":
            continue
        faults += _same(case, target)
        if (case.provenance / "server" / f"{FIRST}.{target.name}.json").is_file():
            fingerprint = _fingerprint(_first(case, target))
            offers = f"{target.name}: {fingerprint} (claimed)"
            said.append(offers if fingerprint else f"{target.name} offers no identity")
    faults += _told_of(case)
    if faults:
        return Check("targets", "FAIL", tuple(faults))
    unknown = any("no identity" in line for line in said)
    return Check("targets", "UNKNOWN" if unknown else "PASS", tuple(said) or ("nobody is asked",))


def _first(case: SuiteCase, target: Target) -> list[Mapping[str, Any]]:
    return list(case.json(case.provenance / "server" / f"{FIRST}.{target.name}.json")["endpoints"])


def _fingerprint(endpoints: list[Mapping[str, Any]]) -> str | None:
    told = (value_at(each, "identity", "system_fingerprint") for each in endpoints)
    return next((each for each in told if isinstance(each, str) and each), None)


def _same(case: SuiteCase, target: Target) -> list[str]:
    """How what was recorded of a target differs from what it was first, and from what was to be asked."""
    jobs = [job.id for job in case.suite.jobs if job.target == target.name]
    states = [case.state.job(job) for job in jobs]
    if not (case.provenance / "server" / f"{FIRST}.{target.name}.json").is_file():
        begun = any(state.attempt for state in states)
        return [f"{target.name}: nobody recorded who it was first"] if begun else []
    first = _first(case, target)
    faults = []
    wanted = 1 if target.serve is not None else len(target.base_url)
    if len(first) != wanted:
        faults.append(f"{target.name}: {len(first)} endpoints answered, {wanted} were to be asked")
    if len({value_at(each, "identity", "system_fingerprint") for each in first} - {None}) > 1:
        faults.append(f"{target.name}: its endpoints claim to be several models")
    for state in states:
        if state.phase != "ended" or state.ended is None:
            continue
        for when in WHEN:
            found = case.json(case.provenance / "server" / f"{state.id}.{state.attempt}.{when}.json")
            pairs: Iterator[tuple[Any, Any]] = zip_longest(first, list(found["endpoints"]), fillvalue={})
            faults += [
                f"{state.id} {when}: {what}" for one, other in pairs for what in differences(one, other)
            ]
    if target.serve is not None:
        frozen = case.before.get(f"model:{target.serve}")
        served = {value_at(each, "identity", "model", "file_sha256") for each in first}
        if served != {frozen}:
            faults.append(
                f"{target.name}: it claims the model {sorted(map(str, served))}, frozen was {frozen}"
            )
    return faults


def _told_of(case: SuiteCase) -> list[str]:
    """What summary and record say of the targets that is not in the suite or not what they said."""
    faults = []
    declared = {target.name: dict(target.provenance) for target in case.suite.targets}
    if case.json(case.provenance / DECLARED) != declared:
        faults.append(f"provenance/{DECLARED} is not what the suite declares of its targets")
    for told in case.summary.targets:
        path = case.provenance / "server" / f"{FIRST}.{told.name}.json"
        claimed = _fingerprint(list(case.json(path)["endpoints"])) if path.is_file() else None
        if told.server != claimed:
            faults.append(f"summary.json says that {told.name} is {told.server}, it claimed {claimed}")
    return faults
