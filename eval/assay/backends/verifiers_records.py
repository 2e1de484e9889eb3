"""The run that a job of `verifiers` made in its folder, read as the job's records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.backends.base import Context, Reached
from assay.errors import AssayError
from assay.plan import NAME as PLAN
from assay.plan import load_plan
from assay.record import asked
from assay.record.results import SAMPLES, SUMMARY, derive, load_summary, load_tasks
from assay.record.sample import Baseline, Sample
from assay.run.state import NAME as STATE
from assay.run.state import load_state

PRIMARY = "reward"


class Inner:
    """How far the run in a folder has come; its state is read again only when it was written again.

    Args:
        folder: The job's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known = Reached(0)
        self._written_ns = 0

    def __call__(self) -> Reached:
        """Rollouts finished, and planned, as the run's own state says."""
        run = directory(self.folder)
        if run is None:
            return self.known
        try:
            written_ns = (run / STATE).stat().st_mtime_ns
            if written_ns != self._written_ns:
                state = load_state(run)
                self._written_ns = written_ns
                done = sum(entry.finished for entry in state.entries)
                self.known = Reached(done, sum(entry.planned for entry in state.entries) or None)
        except (OSError, AssayError):
            pass
        return self.known


def directory(folder: Path) -> Path | None:
    """The run directory in a job's folder; None before there is one."""
    found = sorted(path.parent for path in folder.glob(f"*/{STATE}"))
    return found[0] if found else None


@dataclass
class Found:
    """What a run says of itself.

    Attributes:
        run: Its directory; None when none was begun.
        recorded: Whether it came to its end, with samples and a summary.
        problems: What fails it.
        notes: What else went wrong.
        scores: Its score by family.
        sampling: The options that its requests were to have; None where no run was begun.
        baselines: What the best constant answer scores, by family.
        samples: Its rows, where they must be derived here because it could not do it any more.
    """

    run: Path | None = None
    recorded: bool = False
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    sampling: Mapping[str, Any] | None = None
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()


def found_in(folder: Path) -> Found:
    """Read the run in a job's folder; what cannot be read becomes a problem."""
    run = directory(folder)
    if run is None:
        return Found()
    try:
        if (run / SUMMARY).exists():
            summary = load_summary(run)
            return Found(
                run,
                True,
                summary.problems,
                summary.notes,
                {row.family: row.score for row in summary.families if row.score is not None},
                next((entry.sampling for entry in summary.entries), None),
                {
                    row.family: Baseline(answer=row.baseline_answer or "", score=row.baseline)
                    for row in summary.families
                    if row.baseline is not None
                },
            )
        state = load_state(run)
        told = (state.error,) if state.error and state.phase == "failed" else ()
        if not (run / PLAN).exists() or not (run / "provenance" / "tasks").is_dir():
            return Found(run, problems=told)
        plan = load_plan(run / PLAN)
        tasks = load_tasks(run, plan)
        samples, faults = derive(run, plan, tasks)
        return Found(
            run,
            problems=(*told, *faults),
            sampling=next((asked.sampling(plan.dialect, plan.native(entry)) for entry in plan.entries), None),
            baselines={name: base for task in tasks.values() for name, base in task.baselines.items()},
            samples=tuple(samples),
        )
    except (AssayError, OSError) as error:
        return Found(run, problems=(str(error),))


def rows(context: Context, found: Found) -> Iterator[Sample]:
    """The run's rows as the job's: its name, paths below the suite's run, the reward among the scores."""
    if found.run is None:
        return
    before = found.run.relative_to(context.run).as_posix()
    for sample in _samples(found.run) if found.recorded else found.samples:
        rewards = dict(sample.rewards)
        if sample.reward is not None:
            rewards[PRIMARY] = sample.reward
        record = None if sample.record is None else f"{before}/{sample.record}"
        yield sample.model_copy(update={"entry": context.job.id, "rewards": rewards, "record": record})


def _samples(run: Path) -> Iterator[Sample]:
    with (run / SAMPLES).open("rb") as file:
        for line in file:
            yield Sample.model_validate(json.loads(line))
