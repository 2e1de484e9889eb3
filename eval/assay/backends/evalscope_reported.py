"""What EvalScope itself reports, and how far it may be believed: counts before rows are read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.backends import evalscope_records as records
from assay.backends.evalscope_benchmarks import BENCHMARKS, BFCL, BFCL_GROUPS, NEEDLE, OVERALL
from assay.backends.evalscope_records import Lines, Record
from assay.backends.evalscope_rows import Source
from assay.suite.job import Job

SHOWN = 5


@dataclass(frozen=True)
class Counted:
    """Samples by what became of them.

    Attributes:
        planned: Of all subsets.
        answered: With a line of EvalScope's, by subset.
        ended: Answered or failed.
        whole: Every planned one was answered and scored.
        problems: What of the records cannot be believed.
        notes: What else is to be known.
    """

    planned: int
    answered: Mapping[str, int]
    ended: int
    whole: bool
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def count(source: Source, record: Record) -> Counted:
    """Hold what there is against what was planned."""
    tasks = record.tasks or []
    planned = {name: {task.index for task in tasks if task.subset == name} for name in records.subsets(tasks)}
    answered, problems, notes, scored = Counter[str](), [], [], 0
    failed = 0
    for subset, wanted in planned.items():
        told = records.predictions(source.folder, source.dataset, subset)
        judged = records.reviews(source.folder, source.dataset, subset)
        for lines in (told, judged):
            problems += _faults(lines, wanted)
            if lines.torn:
                notes.append(f"{source.name(lines.path)} ends in a torn line, which is left out")
        answered[subset] = sum(1 for index in wanted if index in told)
        scored += sum(1 for index in wanted if index in judged)
        failed += sum(1 for index in wanted if index not in told and (subset, index) in record.failures)
    total = sum(len(wanted) for wanted in planned.values())
    if failed and record.report is not None:
        notes.append(f"EvalScope's own figures are over {total - failed} of {total} samples")
    return Counted(
        planned=total,
        answered=dict(answered),
        ended=sum(answered.values()) + failed,
        whole=bool(total) and sum(answered.values()) == scored == total and not record.unprepared,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def figures(job: Job, record: Record, counted: Counted) -> dict[str, float]:
    """EvalScope's own figures by name; of BFCL's groups those of which every sample was answered."""
    found: dict[str, float] = {}
    for metric in _tables((record.report or {}).get("metrics")):
        name = str(metric.get("name"))
        subsets = [
            subset
            for category in _tables(metric.get("categories"))
            for subset in _tables(category.get("subsets"))
        ]
        plain = [subset for subset in subsets if not subset.get("is_aggregate")]
        # The mean over BFCL's subsets and groups together means nothing.
        if job.dataset != BFCL:
            _take(found, name, metric.get("score"))
        # Needle-in-a-Haystack has a metric for each length and depth: of one sample in each language.
        if job.dataset != NEEDLE and (len(plain) > 1 or job.dataset == BFCL):
            for subset in plain:
                _take(found, f"{name}/{subset.get('name')}", subset.get("score"))
        for subset in subsets:
            if subset.get("is_aggregate") and _group_is_whole(str(subset.get("name")), counted):
                _take(found, str(subset.get("name")), subset.get("score"))
    return found


def first_metric(folder: Path) -> str:
    """The metric of a benchmark that is not known here: the one that its scorer calls the main one."""
    for path in sorted((folder / "reviews" / records.MODEL).glob("*.jsonl")):
        lines = Lines(path)
        for index in sorted(lines.indices):
            try:
                _, review = lines.read(index) or (0, {})
                score = review["sample_score"]["score"]
                return str(score.get("main_score_name") or next(iter(score["value"])))
            except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
                continue
    return "acc"


def _faults(lines: Lines, wanted: set[int]) -> list[str]:
    strange = sorted(index for index in lines.indices if index not in wanted)
    found = []
    if strange:
        shown = ", ".join(map(str, strange[:SHOWN]))
        found.append(f"{lines.path.name} has samples that were not planned: {shown}")
    if lines.twice:
        shown = ", ".join(map(str, lines.twice[:SHOWN]))
        found.append(f"{lines.path.name} has samples twice: {shown}")
    return found


def _group_is_whole(name: str, counted: Counted) -> bool:
    known = BENCHMARKS[BFCL].subsets
    wanted = known if name == OVERALL else BFCL_GROUPS.get(name)
    if wanted is None or (name == OVERALL and not counted.whole):
        return False
    return all(counted.answered.get(subset) == samples for subset, samples in wanted.items())


def _tables(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _take(found: dict[str, float], name: str, value: Any) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        found[name] = float(value)
