"""The audit: every check over one run directory, offline, trusting nothing in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from assay.audit import input_checks, pinned_checks, record_checks, server_checks, shell_checks
from assay.audit.case import Case
from assay.audit.check import Check
from assay.coordinator.state import is_suite
from assay.errors import AssayError, VerificationError
from assay.record.manifest import run_files

CHECKS: tuple[tuple[str, Callable[[Case], Check]], ...] = (
    ("signature", record_checks.signature),
    ("files", record_checks.files),
    ("plan", record_checks.plan),
    ("state", record_checks.state),
    ("tasks", input_checks.tasks),
    ("rows", record_checks.rows),
    ("samples", record_checks.samples),
    ("summary", record_checks.summary),
    ("inputs unchanged", input_checks.unchanged),
    ("pins", input_checks.pins),
    ("sources", pinned_checks.source_trees),
    ("data", pinned_checks.task_data),
    ("routes", pinned_checks.routed),
    ("checkout", input_checks.checkout),
    ("worktree", input_checks.worktree),
    ("configuration", input_checks.configuration),
    ("requests", server_checks.requests),
    ("server", server_checks.server),
    ("container", server_checks.container),
    ("isolation", server_checks.isolation),
    ("shell", shell_checks.shell),
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
        return [_guarded(name, partial(check, suite)) for name, check in suite_checks.CHECKS]
    case = Case(run)
    return [_guarded(name, partial(check, case)) for name, check in CHECKS]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except AssayError as error:
        return Check(name, "FAIL", (str(error),))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # Bytes of a stranger: whatever shape they have, the answer is a verdict and not a traceback.
        return Check(name, "FAIL", (f"the record cannot be read: {type(error).__name__}: {error}",))
