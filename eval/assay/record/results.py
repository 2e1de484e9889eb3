"""From native records to `samples.jsonl`, `summary.json` and `summary.md`; the audit derives them again.

Everything is a function of what lies in the run directory, so that what a run printed can be computed by
whoever holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from assay.errors import VerificationError
from assay.files import OLDER, other_form, read_json, write_atomic, write_json_atomic
from assay.plan import EntryPlan, Plan
from assay.record import asked
from assay.record.derive import samples_of
from assay.record.render import markdown
from assay.record.sample import Sample, TaskPlan
from assay.record.scores import count, score_families
from assay.record.summary import SCHEMA, EntryFacts, Summary, failures, outcome

SAMPLES = "samples.jsonl"
SUMMARY = "summary.json"
MARKDOWN = "summary.md"


def derive(run: Path, plan: Plan, tasks: Mapping[str, TaskPlan]) -> tuple[list[Sample], list[str]]:
    """Every planned rollout as a sample, and what the native records hold that was not planned.

    Args:
        run: The run directory.
        plan: What it did.
        tasks: What each entry asks.

    Raises:
        VerificationError: a native record cannot be read.
    """
    samples: list[Sample] = []
    faults: list[str] = []
    for entry in plan.entries:
        rows, unplanned = samples_of(run, entry.name, plan.dialect, entry.parts, tasks[entry.name])
        samples += rows
        faults += unplanned
    return samples, faults


def summarise(
    plan: Plan,
    tasks: Mapping[str, TaskPlan],
    samples: Sequence[Sample],
    problems: Sequence[str],
    notes: Sequence[str],
    cancelled: bool,
    server: str | None,
) -> Summary:
    """The summary of a run's samples.

    Args:
        plan: What the run did.
        tasks: What each entry asks, with its baselines.
        samples: All rows, in the plan's order.
        problems: Faults that fail the run.
        notes: Faults that do not.
        cancelled: The user ended it.
        server: The `system_fingerprint` the server claims.
    """
    counts = count(samples)
    entries = tuple(entry_facts(plan, entry, samples) for entry in plan.entries)
    return Summary(
        profile=plan.profile,
        description=plan.description,
        pins=plan.pins,
        status=outcome(counts, problems, cancelled),
        problems=tuple(problems),
        notes=tuple(notes),
        runtime=plan.runtime,
        egress=plan.egress,
        model=plan.server.model,
        server=server,
        counts=counts,
        entries=entries,
        failures=failures(samples),
        families=score_families(
            samples,
            {name: task.baselines for name, task in tasks.items()},
            {facts.entry: asked.may_differ(facts.sampling, bool(facts.seeds)) for facts in entries},
        ),
    )


def entry_facts(plan: Plan, entry: EntryPlan, samples: Sequence[Sample]) -> EntryFacts:
    """What was asked in an entry, and how much of it the native records hold."""
    rows = [row for row in samples if row.entry == entry.name]
    counts = count(rows)
    native = plan.native(entry)
    return EntryFacts(
        entry=entry.name,
        tasks=len({row.task_key for row in rows}),
        tasks_found=len({row.task_key for row in rows if row.status != "missing"}),
        rollouts=entry.rollouts,
        seeds=entry.seeds,
        sampling=asked.sampling(plan.dialect, native),
        limits=asked.limits(plan.dialect, native),
        counts=counts,
        truncated_rate=counts.truncated_rate,
    )


def left_out(plan: Plan, samples: Sequence[Sample], ended_well: Collection[str]) -> list[str]:
    """What an evaluator that ended well did not ask, though it was planned: a fault, and no missing answer.

    Args:
        plan: What the run did.
        samples: All rows.
        ended_well: The entries whose evaluator ended with exit code 0, uninterrupted.
    """
    faults = []
    for entry in plan.entries:
        missing = sum(row.status == "missing" for row in samples if row.entry == entry.name)
        if missing and entry.name in ended_well:
            lacking = f"its records lack {missing} of {entry.planned} rows"
            faults.append(f"{entry.name}: the evaluator ended well, but {lacking}")
    return faults


def samples_bytes(samples: Sequence[Sample]) -> bytes:
    """The bytes of `samples.jsonl`: one row a line, fields in the order of `Sample`."""
    return b"".join(row.model_dump_json().encode("utf-8") + b"\n" for row in samples)


def write_results(run: Path, samples: Sequence[Sample], summary: Summary) -> None:
    """Write samples and summary; RunError when the disk is full."""
    write_atomic(run / SAMPLES, samples_bytes(samples))
    write_json_atomic(run / SUMMARY, summary.model_dump(mode="json"))
    write_atomic(run / MARKDOWN, markdown(summary).encode("utf-8"))


def load_summary(run: Path) -> Summary:
    """The recorded summary; VerificationError when there is none, it is of another form or cannot be read."""
    try:
        value = read_json(run / SUMMARY)
        if other := other_form(value, SCHEMA):
            raise VerificationError(
                f"{run / SUMMARY} is of the form {other}", f"this version reads {SCHEMA}", OLDER
            )
        return Summary.model_validate(value)
    except FileNotFoundError:
        raise VerificationError(
            f"{run} has no {SUMMARY}", "the run did not come to its end", f"assay status {run}"
        ) from None
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise VerificationError(f"{run / SUMMARY} cannot be read", str(error).splitlines()[0]) from error


def load_tasks(run: Path, plan: Plan) -> dict[str, TaskPlan]:
    """What each entry was to ask, as recorded; VerificationError when that is missing."""
    tasks = {}
    for entry in plan.entries:
        path = run / "provenance" / "tasks" / f"{entry.name}.json"
        try:
            tasks[entry.name] = TaskPlan.model_validate(read_json(path))
        except (OSError, ValueError, RecursionError, ValidationError) as error:
            raise VerificationError(f"{path} cannot be read", str(error).splitlines()[0]) from error
    return tasks
