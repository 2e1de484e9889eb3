"""The audit: every check over one run directory, offline, trusting nothing in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from assay.audit import (
    environment_checks,
    form_checks,
    input_checks,
    origin_checks,
    pinned_checks,
    record_checks,
    server_checks,
    shell_checks,
    signature_checks,
    story_checks,
)
from assay.audit.case import Case
from assay.audit.check import Check, Rule, looked
from assay.coordinator.state import is_suite
from assay.errors import VerificationError
from assay.export.contents import is_export
from assay.record.manifest import run_files
from assay.signing.key import PublicKey

CHECKS: tuple[Rule[Case], ...] = (
    Rule("signature", "recomputed", signature_checks.signature),
    Rule("statement", "recomputed", signature_checks.statement),
    Rule("files", "recomputed", record_checks.files),
    Rule("form", "recomputed", form_checks.form),
    Rule("plan", "recomputed", record_checks.plan),
    Rule("profile", "pinned", origin_checks.profile),
    Rule("state", "measured", record_checks.state),
    Rule("events", "measured", story_checks.events),
    Rule("times", "measured", story_checks.times),
    Rule("tasks", "recomputed", input_checks.tasks),
    Rule("rows", "recomputed", record_checks.rows),
    Rule("samples", "recomputed", record_checks.samples),
    Rule("summary", "recomputed", record_checks.summary),
    Rule("notes", "claimed", origin_checks.notes),
    Rule("inputs unchanged", "measured", input_checks.unchanged),
    Rule("pins", "pinned", input_checks.pins),
    Rule("sources", "pinned", pinned_checks.source_trees),
    Rule("data", "pinned", pinned_checks.task_data),
    Rule("routes", "measured", pinned_checks.routed),
    Rule("checkout", "pinned", input_checks.checkout),
    Rule("environments", "recomputed", environment_checks.environments),
    Rule("worktree", "measured", input_checks.worktree),
    Rule("configuration", "recomputed", input_checks.configuration),
    Rule("requests", "measured", server_checks.requests),
    Rule("server", "claimed", server_checks.server),
    Rule("container", "measured", server_checks.container),
    Rule("isolation", "measured", server_checks.isolation),
    Rule("shell", "claimed", shell_checks.shell),
)
# What the run of a suite answers for, also of the runs inside it.
OUTER = frozenset({"signature", "statement", "environments"})


def audit(run: Path, key: PublicKey | None = None, rescored: bool = False) -> list[Check]:
    """Every check's verdict; a check that cannot read what it needs fails, and says what.

    Args:
        run: The run directory.
        key: The only key whose signature is believed; None for none.
        rescored: Whether upstream's scorers score the saved answers again.

    Raises:
        VerificationError: there is no run directory.
    """
    if not run.is_dir() or run.is_symlink():
        raise VerificationError(f"{run} is not a run directory", "", "list the runs: ls eval/runs")
    # A record names its places whole, however the run is named here.
    run = run.resolve()
    try:
        run_files(run)
    except VerificationError as error:
        # Nothing of it is opened: a link leads elsewhere, and a pipe would never end.
        return [Check("files", "FAIL", (str(error), "nothing else was read"))]
    if is_export(run):
        # Here alone: a run itself needs none of it.
        from assay.audit.published import audit_published

        return audit_published(run, key, rescored)
    if is_suite(run):
        checks = _suite(run, key)
    else:
        case = Case(run, key)
        checks = [looked(rule, case) for rule in CHECKS]
    if rescored:
        # Here alone: it drives the evaluators' environments.
        from assay.audit.rescore import rescore

        checks += rescore(run)
    return checks


def _suite(run: Path, key: PublicKey | None) -> list[Check]:
    """The checks of a suite's run, and of each run inside it by its job's name."""
    # Here alone: a profile's run needs none of it.
    from assay.audit.suite_rules import RULES, SuiteCase, inner_runs

    case = SuiteCase(run, key)
    checks = [looked(rule, case) for rule in RULES]
    try:
        found = [(job.id, Case(inside)) for job, inside in inner_runs(case)]
    except (VerificationError, OSError, ValueError, LookupError, StopIteration):
        return checks  # what cannot be read has failed by its own name
    for job, inside in found:
        rules = [rule for rule in CHECKS if rule.name not in OUTER]
        checks += [replace(looked(rule, inside), name=f"{job}: {rule.name}") for rule in rules]
    return checks
