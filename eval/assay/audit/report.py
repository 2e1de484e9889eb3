"""The audit: every check over one run directory, offline, trusting nothing in it."""

from __future__ import annotations

from pathlib import Path

from assay.audit import input_checks, pinned_checks, record_checks, server_checks, shell_checks
from assay.audit.case import Case
from assay.audit.check import Check, Rule, looked
from assay.coordinator.state import is_suite
from assay.errors import VerificationError
from assay.record.manifest import run_files

CHECKS: tuple[Rule[Case], ...] = (
    Rule("signature", "recomputed", record_checks.signature),
    Rule("files", "recomputed", record_checks.files),
    Rule("plan", "recomputed", record_checks.plan),
    Rule("state", "measured", record_checks.state),
    Rule("tasks", "recomputed", input_checks.tasks),
    Rule("rows", "recomputed", record_checks.rows),
    Rule("samples", "recomputed", record_checks.samples),
    Rule("summary", "recomputed", record_checks.summary),
    Rule("inputs unchanged", "measured", input_checks.unchanged),
    Rule("pins", "pinned", input_checks.pins),
    Rule("sources", "pinned", pinned_checks.source_trees),
    Rule("data", "pinned", pinned_checks.task_data),
    Rule("routes", "measured", pinned_checks.routed),
    Rule("checkout", "pinned", input_checks.checkout),
    Rule("worktree", "measured", input_checks.worktree),
    Rule("configuration", "recomputed", input_checks.configuration),
    Rule("requests", "measured", server_checks.requests),
    Rule("server", "claimed", server_checks.server),
    Rule("container", "measured", server_checks.container),
    Rule("isolation", "measured", server_checks.isolation),
    Rule("shell", "claimed", shell_checks.shell),
)


def audit(run: Path) -> list[Check]:
    """Every check's verdict; a check that cannot read what it needs fails, and says what.

    Raises:
        VerificationError: there is no run directory.
    """
    if not run.is_dir() or run.is_symlink():
        raise VerificationError(f"{run} is not a run directory", "", "list the runs: ls eval/runs")
    try:
        run_files(run)
    except VerificationError as error:
        # Nothing of it is opened: a link leads elsewhere, and a pipe would never end.
        return [Check("files", "FAIL", (str(error), "nothing else was read"))]
    if is_suite(run):
        # Here alone: a profile's run needs none of it.
        from assay.audit import suite_checks

        suite = suite_checks.SuiteCase(run)
        return [looked(rule, suite) for rule in suite_checks.CHECKS]
    case = Case(run)
    return [looked(rule, case) for rule in CHECKS]
