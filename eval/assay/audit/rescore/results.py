"""Verifiers 0.1, which has no replay: its rubric over saved completions (`eval/evaluators/rescore_v0.py`).

The rows, gold answers included, are made again by the environment's own loader of the pinned data: of the
record only what the model said is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from assay import data, dialect
from assay.audit.case import Case
from assay.audit.check import Check
from assay.audit.rescore.child import Scorer, private
from assay.audit.rescore.scores import REWARD, Score, Scores, held, of_row
from assay.evaluator import load_evaluator
from assay.plan import EntryPlan, Part
from assay.profile import merge
from assay.record import dialects
from assay.record.native import finite
from assay.record.results_v0 import OWN_METRICS
from assay.run import native, route

PROGRAM = "rescore_v0.py"


def check(case: Case, entry: EntryPlan, name: str) -> Check:
    """The entry's check (see `entries.check`)."""
    reader = dialects.of(case.plan.dialect)
    recorded = {
        place(case, part, row.line): of_row(row)
        for part in entry.parts
        for row in reader.rows(case.run / part.folder)
    }

    def again() -> Scores:
        return {key: score for part in entry.parts for key, score in scored(case, entry, part)}

    return held(name, recorded, again, "the environment's own rubric")


def place(case: Case, part: Part, line: int) -> str:
    """Where a rollout's score stands."""
    record = dialects.of(case.plan.dialect).record(case.run / part.folder)
    return f"{record.relative_to(case.run).as_posix()} line {line}"


def scored(case: Case, entry: EntryPlan, part: Part) -> Iterator[tuple[str, Score]]:
    """What the rollouts of a part score now; PrerequisiteError where environment or data are not here."""
    plan, evaluator = case.plan, load_evaluator(case.plan.evaluator)
    speech = dialect.of(plan.dialect)
    record = dialects.of(plan.dialect).record(case.run / part.folder)
    for name in route.names(plan, evaluator, (entry,)):
        data.verify(name)
    with private() as scratch:
        routed = route.to_data(evaluator, plan.taskset(entry))
        over = merge(speech.first(entry.tasks), routed.overrides)
        (launch,) = native.write_launch(plan, entry, scratch.folder("launch"), over)
        said = native.environment(plan, scratch, None, "rescore", routed)
        out = scratch.path / "scored.jsonl"
        Scorer(evaluator, PROGRAM, said, routed.directory(scratch.path / "work")).run(
            [launch, record.resolve(), out]
        )
        for line in out.read_text("utf-8").splitlines():
            found = json.loads(line)
            rewards = {
                name: finite(value, name)
                for name, value in found["metrics"].items()
                if name not in OWN_METRICS
            }
            yield (
                place(case, part, int(found["line"])),
                Score({**rewards, REWARD: finite(found["reward"], REWARD)}),
            )
