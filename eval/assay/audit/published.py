"""The audit of a run's published form (`assay.export`): what it carries is looked at as in the run itself.

The manifest, the signature over it and whole files of provenance are there, so they are held against each
other as ever; so is the signed statement, whose scores, counts and intervals the published summary must have.
Rows can be counted again, but nobody can derive them again from records that were left out, and a check that
would need those says so by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from assay.audit.case import Case, Recorded
from assay.audit.check import Check, Rule, judge, looked
from assay.audit.form_checks import doubled
from assay.audit.record_checks import differences
from assay.coordinator.state import is_suite
from assay.digest import sha256_file, sha256_files
from assay.errors import VerificationError
from assay.export import texts
from assay.export.choice import fates
from assay.export.contents import CRATE, NAME, STATEMENT, Contents, load
from assay.export.crate import metadata
from assay.files import read_json
from assay.record.manifest import NAME as MANIFEST
from assay.record.manifest import OUTSIDE, load_manifest, run_files
from assay.record.results import SAMPLES, SUMMARY, summarise
from assay.record.sample import TaskPlan
from assay.record.suite_results import load_suite_summary, recompute
from assay.record.summary import EXIT_CODES
from assay.signing.key import PublicKey
from assay.view import rows as recorded_rows
from assay.view.open import open_run

LEFT_OUT = "it needs files that the published form leaves out: ask the operator for the run itself"
SHOWN = 5
# Checks that read nothing but what an export keeps whole, or derives without changing what they look at.
CARRIED = frozenset(
    {
        *("signature", "statement", "plan", "tasks", "inputs unchanged", "pins", "sources", "data", "routes"),
        *("checkout", "environments", "worktree", "server", "container", "shell", "profile"),
    }
)
CARRIED_OF_SUITES = frozenset(
    {
        *("signature", "statement", "configuration", "state", "inputs unchanged", "pins", "data"),
        *("checkout", "environments", "worktree", "launch", "targets", "inner runs", "shell"),
    }
)
# Of a run inside, whose rows and summary are the job's own.
CARRIED_INSIDE = CARRIED - {"signature", "statement", "environments", "server"}


@dataclass(frozen=True)
class PublishedCase(Case):
    """The published form of a profile's run."""

    def as_recorded(self, tasks: TaskPlan) -> TaskPlan:
        """The tasks as an export tells them: without the baselines' answers."""
        return texts.tasks(tasks)


def audit_published(run: Path, key: PublicKey | None, rescored: bool) -> list[Check]:
    """Every check's verdict, in the order of the run's own audit.

    Args:
        run: The directory.
        key: The only key whose signature is believed; None for none.
        rescored: Whether saved answers were to be scored again, of which there are none.
    """
    checks = _of_suite(run, key) if is_suite(run) else _of_profile(run, key)
    if rescored:
        checks.append(Check("rescore", "UNKNOWN", (LEFT_OUT,)))
    return checks


def _of_profile(run: Path, key: PublicKey | None) -> list[Check]:
    # Here, since the audit's list of checks is where this is called from.
    from assay.audit.report import CHECKS

    own = {"files": files, "state": _state, "rows": _rows, "summary": _summary}
    case = PublishedCase(run, key)
    return [looked(_published(rule, own, CARRIED), case) for rule in CHECKS]


def _of_suite(run: Path, key: PublicKey | None) -> list[Check]:
    from assay.audit.report import CHECKS, OUTER
    from assay.audit.suite_rules import RULES, SuiteCase, inner_runs

    own = {"files": files, "rows": _rows_of_suite, "summary": _summary_of_suite}
    case = SuiteCase(run, key)
    checks = [looked(_published(rule, own, CARRIED_OF_SUITES), case) for rule in RULES]
    try:
        found = [(job.id, PublishedCase(inside)) for job, inside in inner_runs(case)]
    except (VerificationError, OSError, ValueError, LookupError, StopIteration):
        return checks  # what cannot be read has failed by its own name
    rules = [_published(rule, {}, CARRIED_INSIDE) for rule in CHECKS if rule.name not in OUTER]
    for job, inside in found:
        checks += [replace(looked(rule, inside), name=f"{job}: {rule.name}") for rule in rules]
    return checks


def _published(rule: Rule[Any], own: Mapping[str, Any], carried: frozenset[str]) -> Rule[Any]:
    """The rule as it is for an export."""
    if rule.name in own:
        return Rule(rule.name, rule.basis, own[rule.name])
    if rule.name in carried:
        return rule
    return Rule(rule.name, rule.basis, lambda case: Check(rule.name, "UNKNOWN", (LEFT_OUT,)))


def files(case: Recorded) -> Check:
    """Kept files are as in the manifest, derived ones as listed, and all that is lacking is named."""
    contents, manifest = load(case.run), load_manifest(case.run)
    faults = [*_of_manifest(contents, manifest), *_on_disk(case.run, contents)]
    if contents.run != case.run.resolve().name:
        faults.append(f"{NAME} is of {contents.run}")
    if (kind := "suite" if is_suite(case.run) else "profile") != contents.kind:
        faults.append(f"{NAME} tells of a {contents.kind}'s run, and it is a {kind}'s")
    faults += _told(case.run, contents)
    said = f"{len(contents.kept)} as in {MANIFEST}, {len(contents.derived)} without their texts"
    return judge("files", faults, f"{said}, {len(contents.omitted)} left out and named by digest")


def _of_manifest(contents: Contents, manifest: Mapping[str, str]) -> Iterator[str]:
    """How the list of an export contradicts the manifest of its run."""
    known = {path: f"sha256:{digest}" for path, digest in contents.kept.items()}
    known |= {path: f"sha256:{each.original}" for path, each in contents.derived.items()}
    known |= {
        path: digest if digest.startswith("link:") else f"sha256:{digest}"
        for path, digest in contents.omitted.items()
    }
    for path in sorted(known.keys() | manifest.keys()):
        if path in (MANIFEST, STATEMENT):
            continue
        if known.get(path) != manifest.get(path):
            yield f"{path}: {NAME} has {known.get(path)}, {MANIFEST} {manifest.get(path)}"
    for path, fate in fates(manifest).items():
        if fate != "omitted" and path in contents.omitted:
            yield f"{path} was left out, and an export has it"
        elif fate == "kept" and path in contents.derived:
            yield f"{path} was changed, and an export keeps it as it was"


def _on_disk(run: Path, contents: Contents) -> Iterator[str]:
    """How the files that are here differ from those that are listed."""
    links, there = run_files(run)
    found = {path.relative_to(run).as_posix(): digest for path, digest in sha256_files(there).items()}
    listed = contents.digests
    for path in sorted(listed.keys() | found.keys() | links.keys()):
        if path not in listed:
            if path not in {NAME, CRATE, *OUTSIDE}:
                yield f"{path}: not listed: it was added"
        elif path not in found:
            yield f"{path}: listed, but missing"
        elif found[path] != listed[path]:
            yield f"{path}: is {found[path]}, listed {listed[path]}"


def _told(run: Path, contents: Contents) -> Iterator[str]:
    """Where files that no manifest vouches for could be read in two ways, or describe another run."""
    for path in filter(lambda path: (run / path).is_file(), sorted({NAME, CRATE, *contents.derived})):
        yield from (f"{path}: {fault}" for fault in doubled(run / path))
    if not (run / CRATE).is_file():
        yield f"{CRATE}: missing"
        return
    said = read_json(run / CRATE)
    digests = {**contents.digests, NAME: sha256_file(run / NAME)}
    if said != metadata(run, open_run(run), contents, digests):
        yield f"{CRATE}: it does not describe what is here"


def _state(case: Case) -> Check:
    """The run came to its end, and its state says the same as its summary."""
    faults = []
    if case.state.phase != case.summary.status:
        faults.append(f"state.json says {case.state.phase}, summary.json {case.summary.status}")
    if case.state.phase not in EXIT_CODES:
        faults.append(f"the run is {case.state.phase}")
    if [(entry.name, entry.planned) for entry in case.state.entries] != [
        (entry.name, entry.planned) for entry in case.plan.entries
    ]:
        faults.append("state.json tells of other entries than resolved.json")
    faults += [f"the run itself tells of a problem: {problem}" for problem in case.summary.problems]
    return judge("state", faults, f"ended {case.state.ended_at} as {case.state.phase}")


def _rows(case: Case) -> Check:
    """There is a row for each rollout of each planned task, in the plan's order, and no other."""
    planned = (
        (entry.name, task, rollout)
        for entry in case.plan.entries
        for task in case.tasks[entry.name].tasks
        for rollout in range(entry.rollouts)
    )
    faults: list[str] = []
    count = 0
    for count, (wanted, row) in enumerate(zip_longest(planned, recorded_rows.read(case.run)), start=1):
        if wanted is None or row is None:
            faults.append(f"{SAMPLES} and the planned rollouts differ in number from line {count} on")
            break
        entry, task, rollout = wanted
        told = row.entry, row.task_key, row.rollout, row.family, row.cluster
        if told != (entry, task.key, rollout, task.family, task.question_digest) and len(faults) < SHOWN:
            faults.append(f"{SAMPLES} line {count} is not rollout {rollout} of {entry}/{task.key}")
    return judge("rows", faults, f"{count} rows = tasks x rollouts; none can be derived again from here")


def _summary(case: Case) -> Check:
    """The summary follows from the published rows: counts, scores, intervals, baselines."""
    said = case.summary
    again = summarise(
        case.plan,
        case.tasks,
        list(recorded_rows.read(case.run)),
        problems=said.problems,
        notes=said.notes,
        cancelled=said.status == "cancelled",
        server=said.server,
    )
    faults = differences(again.model_dump(mode="json"), said.model_dump(mode="json"), SUMMARY)
    return judge("summary", faults, "counts, scores and intervals computed again from the published rows")


def _rows_of_suite(case: Any) -> Check:
    """Each job has the rows that its summary counts, none of them twice."""
    faults = []
    count = 0
    for result in load_suite_summary(case.run).jobs:
        seen: set[tuple[str, int]] = set()
        number = 0
        for row in recorded_rows.read(case.run):
            if row.entry == result.job:
                number += 1
                seen.add((row.task_key, row.rollout))
        if len(seen) != number:
            faults.append(f"{result.job}: {number - len(seen)} row(s) stand there twice")
        if number > result.counts.planned:
            faults.append(f"{result.job}: {number} rows, and {result.counts.planned} were planned")
        count += number
    return judge("rows", faults, f"{count} rows, none twice; none can be derived again from here")


def _summary_of_suite(case: Any) -> Check:
    """The summary follows from the published rows."""
    again, said = recompute(case.run), load_suite_summary(case.run)
    faults = differences(again.model_dump(mode="json"), said.model_dump(mode="json"), SUMMARY)
    return judge("summary", faults, "counts, scores and intervals computed again from the published rows")
