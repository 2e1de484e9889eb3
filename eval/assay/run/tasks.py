"""Which tasks an entry will ask, known before any model is: from the taskset, never from a list of ours.

Assay's own tasksets describe themselves. Upstream's describe nothing, so a program in the evaluator's
environment (`eval/evaluators/tasks_*.py`) loads and selects them with upstream's own code. Either way the
number must be the one that the profile promises: what a taskset's filters leave is no matter of opinion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from assay import dialect
from assay.errors import ConfigurationError, RunError
from assay.evaluator import Dialect as DialectName
from assay.evaluator import Evaluator, load_evaluator, same
from assay.names import nearest
from assay.paths import EVALUATORS
from assay.plan import EntryPlan, Plan
from assay.process import finish
from assay.profile import describe as describe_error
from assay.record.sample import Baseline, PlannedTask, TaskPlan
from assay.run.native import entry_file, last_words, program

TIMEOUT_S = 1800.0
LISTERS: Mapping[DialectName, Path] = {
    "vf-eval": EVALUATORS / "tasks_v1.py",
    "eval": EVALUATORS / "tasks_v1.py",
    "vf-eval-v0": EVALUATORS / "tasks_v0.py",
}


def list_tasks(
    plan: Plan,
    entry: EntryPlan,
    files: Sequence[Path],
    env: Mapping[str, str],
    cwd: Path,
    cancelled: Callable[[], bool] = lambda: False,
) -> TaskPlan:
    """The tasks that an entry will ask, in their order, without a model.

    Args:
        plan: The plan.
        entry: The entry.
        files: What the native command is given.
        env: The evaluator's environment.
        cwd: Where the command runs; the entry's data are found from there.
        cancelled: Asked again and again: whether to give up.

    Raises:
        ConfigurationError: the taskset is none of the evaluator's, or refuses the configuration, or yields
            another number of tasks than expected.
        PrerequisiteError: the evaluator is not set up.
        CancelledError: `cancelled` said so.
        RunError: it answers something else than a description.
    """
    evaluator = load_evaluator(plan.evaluator)
    taskset = plan.taskset(entry)
    words = describer(plan, entry, evaluator, files)
    done = finish(words, env=env, cwd=cwd, timeout_s=TIMEOUT_S, cancelled=cancelled)
    if done.returncode != 0:
        raise ConfigurationError(
            f'the taskset of entry "{entry.name}" refuses its configuration',
            last_words(done.stderr),
            f"edit {entry_file(plan, entry)}",
        )
    try:
        # What upstream prints while it loads comes before.
        value = json.loads(done.stdout.splitlines()[-1])
        if describes_itself(plan, entry) and (first := dialect.of(plan.dialect).tasks(entry.over)):
            # Its own file is all that it reads; what a constant answer scores is told of all its tasks alone.
            value = {"tasks": value["tasks"][:first], "families": {}}
        tasks = TaskPlan(
            tasks=tuple(PlannedTask.model_validate(task) for task in value["tasks"]),
            baselines={
                name: Baseline.model_validate(family["baseline"])
                for name, family in value["families"].items()
                if family["baseline"] is not None
            },
        )
    except (ValueError, LookupError, TypeError, ValidationError) as error:
        raise RunError(f"the taskset {taskset} does not describe its tasks", describe_error(error)) from error
    if len(tasks.tasks) != entry.tasks:
        raise ConfigurationError(
            f'entry "{entry.name}" yields {len(tasks.tasks)} tasks, expected {entry.tasks}',
            "profiles.toml and what the taskset makes of the entry's TOML and its data disagree",
            "make the two files agree",
        )
    if len({task.key for task in tasks.tasks}) != len(tasks.tasks):
        raise RunError(f'two tasks of entry "{entry.name}" have one key', f"the taskset is {taskset}")
    return tasks


def describes_itself(plan: Plan, entry: EntryPlan) -> bool:
    """Whether the entry's taskset is this checkout's own, which needs no data to describe its tasks."""
    return module(plan.taskset(entry)) in load_evaluator(plan.evaluator).tasksets


def describer(plan: Plan, entry: EntryPlan, evaluator: Evaluator, files: Sequence[Path]) -> list[str | Path]:
    """The command that describes an entry's tasks.

    The plan may be a stranger's: only tasksets that this checkout installs are loaded.

    Raises:
        ConfigurationError: the evaluator does not have the taskset.
        PrerequisiteError: the evaluator is not set up.
    """
    taskset = plan.taskset(entry)
    if module(taskset) in evaluator.tasksets:
        # Its own entry is all that such a taskset reads.
        own = files[0].with_name("entry.toml")
        return [program(evaluator, "python"), "-m", f"{module(taskset)}.describe", own]
    require_taskset(plan, entry, evaluator)
    return [program(evaluator, "python"), "-P", LISTERS[plan.dialect], *files]


def require_taskset(plan: Plan, entry: EntryPlan, evaluator: Evaluator) -> None:
    """Raise ConfigurationError unless the entry's taskset is one that this checkout installs."""
    taskset = plan.taskset(entry)
    upstream = [item.name for item in evaluator.editable]
    if module(taskset) in evaluator.tasksets or same(taskset) in {same(name) for name in upstream}:
        return
    raise ConfigurationError(
        f'entry "{entry.name}" asks for the taskset "{taskset}"',
        f'evaluator "{evaluator.name}" does not have it; '
        + nearest(taskset, [*evaluator.tasksets, *upstream]),
        f"edit {entry_file(plan, entry)}",
    )


def module(taskset: str) -> str:
    """The module of a taskset's id."""
    return taskset.replace("-", "_")
