"""From an entry's native records to one sample for each planned rollout, and what was not planned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from assay.plan import Part
from assay.record import dialects
from assay.record.native import Row
from assay.record.sample import PlannedTask, Sample, Seconds, Status, TaskPlan


def samples_of(
    run: Path, entry: str, dialect: str, parts: Iterable[Part], tasks: TaskPlan
) -> tuple[list[Sample], list[str]]:
    """Every planned rollout as a sample, by task, then by rollout; and what in the records was not planned.

    Args:
        run: The run directory.
        entry: The profile's entry.
        dialect: What its records mean.
        parts: The native invocations it takes; each has a record of its own.
        tasks: What the taskset says it asks.

    Raises:
        VerificationError: a record cannot be read.
    """
    found: dict[str, list[Sample]] = defaultdict(list)
    problems: list[str] = []
    for part in parts:
        samples, faults = _part(run, entry, dialect, part, tasks)
        for sample in samples:
            found[sample.task_key].append(sample)
        problems += faults
    return [sample for task in tasks.tasks for sample in found[task.key]], problems


def _part(run: Path, entry: str, dialect: str, part: Part, tasks: TaskPlan) -> tuple[list[Sample], list[str]]:
    record = dialects.of(dialect).record(run / part.folder).relative_to(run).as_posix()
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in dialects.of(dialect).rows(run / part.folder):
        by_key[row.key].append(row)
    samples = []
    problems = []
    for task in tasks.tasks:
        rows = by_key.pop(task.key, [])
        if len(rows) > part.rollouts:
            problems.append(f"{part.folder}: task {task.key} has {len(rows)} rows, planned {part.rollouts}")
        problems += [f"{part.folder}: {fault}" for row in rows for fault in _differences(task, row)]
        for number in range(part.rollouts):
            found = rows[number] if number < len(rows) else None
            samples.append(_sample(entry, task, part, part.first + number, record, found))
    problems += [f"{part.folder}: task {key} was not planned" for key in by_key]
    return samples, problems


def _differences(task: PlannedTask, row: Row) -> list[str]:
    faults = []
    if task.prompt_digest is not None and row.prompt_digest not in (None, task.prompt_digest):
        faults.append(f"task {task.key} was asked with another prompt than the taskset makes")
    if task.task_hash is not None and row.task_hash != task.task_hash:
        faults.append(f"task {task.key} has other data than the taskset makes")
    return faults


def _sample(entry: str, task: PlannedTask, part: Part, rollout: int, record: str, row: Row | None) -> Sample:
    found = row or Row(line=0, key=task.key)
    ok = found.ok
    return Sample(
        entry=entry,
        task_key=task.key,
        rollout=rollout,
        seed=part.seed,
        family=task.family,
        cluster=task.question_digest,
        prompt_digest=found.prompt_digest,
        answer_digest=found.answer_digest,
        output_digest=found.output_digest,
        reward=found.reward if ok else None,
        rewards=found.rewards if ok else {},
        status="missing" if row is None else _status(row),
        error=found.error,
        empty=ok and found.empty,
        thinking=found.thinking,
        finish_reason=found.finish_reason,
        stop_condition=found.stop_condition,
        prompt_tokens=found.prompt_tokens,
        completion_tokens=found.completion_tokens,
        turns=found.turns,
        attempts=found.attempts,
        seconds=found.seconds if row else Seconds(),
        record=record if row else None,
        line=row.line if row else None,
    )


def _status(row: Row) -> Status:
    if not row.ok:
        return "errored"
    return "truncated" if row.truncated else "scored"
