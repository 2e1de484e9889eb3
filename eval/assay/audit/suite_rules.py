"""The checks of a suite's run, in the order in which they are told."""

from __future__ import annotations

from assay.audit import (
    environment_checks,
    input_checks,
    record_checks,
    shell_checks,
    signature_checks,
    suite_answer_checks,
    suite_checks,
    suite_form_checks,
    suite_inner_checks,
    suite_input_checks,
    suite_launch_checks,
    suite_target_checks,
    suite_task_checks,
)
from assay.audit.check import Rule
from assay.audit.suite_case import SuiteCase
from assay.audit.suite_inner_checks import inner_runs

__all__ = ["RULES", "SuiteCase", "inner_runs"]

RULES: tuple[Rule[SuiteCase], ...] = (
    Rule("signature", "recomputed", signature_checks.signature),
    Rule("statement", "recomputed", signature_checks.statement),
    Rule("files", "recomputed", record_checks.files),
    Rule("form", "recomputed", suite_form_checks.form),
    Rule("configuration", "recomputed", suite_checks.configuration),
    Rule("state", "measured", suite_checks.state),
    Rule("events", "measured", suite_checks.events),
    Rule("times", "measured", suite_form_checks.times),
    Rule("tasks", "recomputed", suite_task_checks.tasks),
    Rule("rows", "recomputed", suite_checks.rows),
    Rule("answers", "recomputed", suite_answer_checks.answers),
    Rule("summary", "recomputed", suite_checks.summary),
    Rule("inputs unchanged", "measured", suite_input_checks.unchanged),
    Rule("pins", "pinned", suite_input_checks.pins),
    Rule("data", "pinned", suite_input_checks.task_data),
    Rule("checkout", "pinned", suite_input_checks.checkout),
    Rule("environments", "recomputed", environment_checks.environments),
    Rule("worktree", "measured", input_checks.worktree),
    Rule("launch", "recomputed", suite_launch_checks.launched),
    Rule("targets", "claimed", suite_target_checks.targets),
    Rule("inner runs", "recomputed", suite_inner_checks.inner),
    Rule("shell", "claimed", shell_checks.shell),
)
