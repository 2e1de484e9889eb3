"""A run's files without the texts of tasks, answers and errors: figures, names and digests stay.

Answers are often one word, and the digest of one word tells the word; so digests of answers become numbers in
the order of their first appearance, which tell equal ones from different ones and nothing else. A task's key
stays as long as it looks like one; any other is told by its digest. What somebody wrote in words (errors,
problems, notes, what a child printed last) is gone. Everything that is computed from rows comes out of these
the same, and so does the statement that was signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.digest import sha256_bytes
from assay.record.dataset_result import DatasetResult
from assay.record.sample import Sample, TaskPlan
from assay.record.scores import FamilyScore
from assay.record.suite_summary import SuiteSummary
from assay.record.summary import Summary
from assay.run.identity import LASTING, PROPS

LEFT_OUT = "left out"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#@+=,-]{0,127}")
WORD = re.compile(r"[a-z][a-z_-]{0,39}")


def name(text: str) -> str:
    """A name as it is, if it looks like one; else its digest."""
    return text if NAME.fullmatch(text) else f"sha256:{sha256_bytes(text.encode('utf-8', 'replace'))}"


def word(text: str | None) -> str | None:
    """A reason in one word of an evaluator's; "other" for anything longer."""
    return text if text is None or WORD.fullmatch(text) else "other"


class Rows:
    """Rows without texts; answers are numbered as they pass."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def row(self, row: Sample) -> Sample:
        """One row."""
        return row.model_copy(
            update={
                "task_key": name(row.task_key),
                "answer_digest": self._number(row.answer_digest),
                "output_digest": self._number(row.output_digest),
                "error": None,
                "finish_reason": word(row.finish_reason),
                "stop_condition": word(row.stop_condition),
            }
        )

    def _number(self, digest: str | None) -> str | None:
        if digest is None:
            return None
        number = self._numbers.setdefault(digest.encode("utf-8"), len(self._numbers) + 1)
        return f"answer-{number}"


def tasks(plan: TaskPlan) -> TaskPlan:
    """The planned tasks; of baselines what they score."""
    return TaskPlan(
        tasks=tuple(
            task.model_copy(
                update={
                    "key": name(task.key),
                    "duplicate_of": None if task.duplicate_of is None else name(task.duplicate_of),
                }
            )
            for task in plan.tasks
        ),
        baselines={
            family: baseline.model_copy(update={"answer": ""}) for family, baseline in plan.baselines.items()
        },
    )


def summary(found: Summary) -> Summary:
    """A profile's summary."""
    return found.model_copy(
        update={
            "problems": _count(found.problems),
            "notes": _count(found.notes),
            "failures": (),
            "families": tuple(_family(each) for each in found.families),
        }
    )


def suite_summary(found: SuiteSummary) -> SuiteSummary:
    """A suite's summary."""
    return found.model_copy(
        update={
            "problems": _count(found.problems),
            "notes": _count(found.notes),
            "jobs": tuple(_job(each) for each in found.jobs),
        }
    )


def state(value: Any) -> Any:
    """A run's state, of either kind: every text in it that somebody wrote in words is gone."""
    if isinstance(value, Mapping):
        return {key: _said(str(key), item) for key, item in value.items()}
    return [state(each) for each in value] if isinstance(value, list) else value


def server(value: Any) -> Any:
    """A record of servers: of `/props`, which may hold a prompt, what identifies a server."""
    if isinstance(value, Mapping):
        return {key: _props(item) if key == PROPS else server(item) for key, item in value.items()}
    return [server(each) for each in value] if isinstance(value, list) else value


def _props(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return None
    kept = {each: value[each] for each in LASTING if each in value}
    defaults = value.get("default_generation_settings")
    if isinstance(defaults, Mapping):
        kept["default_generation_settings"] = {"n_ctx": defaults.get("n_ctx")}
    return kept


def _said(key: str, value: Any) -> Any:
    if key in ("error", "said") and isinstance(value, str):
        return LEFT_OUT if value else value
    if key in ("problems", "notes") and isinstance(value, list):
        return list(_count(value))
    return state(value)


def _count(said: Sequence[Any]) -> tuple[str, ...]:
    """As many remarks as there were; equal ones would be taken for one."""
    return tuple(f"{LEFT_OUT} ({number})" for number, _ in enumerate(said, start=1))


def _family(found: FamilyScore) -> FamilyScore:
    return found.model_copy(
        update={
            "baseline_answer": None if found.baseline_answer is None else "",
        }
    )


def _job(found: DatasetResult) -> DatasetResult:
    return found.model_copy(
        update={
            "problems": _count(found.problems),
            "notes": _count(found.notes),
            "error": None if found.error is None else LEFT_OUT,
            "families": tuple(_family(each) for each in found.families),
            "failures": (),
        }
    )
