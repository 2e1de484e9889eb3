"""Inspect scores saved answers once more (`eval/evaluators/inspect_rescore.py`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from assay.audit.rescore.child import Scorer
from assay.backends import places
from assay.backends.base import Context, arguments_of
from assay.backends.inspect import CACHE_VARIABLE, KEY_VARIABLE, Inspect, child_job, linked
from assay.backends.inspect_arguments import Arguments
from assay.backends.inspect_records import PLANNED, SAMPLES
from assay.evaluator import load_evaluator
from assay.files import write_json_atomic
from assay.run.native import Scratch, surroundings

__all__ = ["PLANNED", "score"]

PROGRAM = "inspect_rescore.py"
NOWHERE = "http://127.0.0.1:1/v1"


def score(context: Context, folder: Path, scratch: Scratch) -> list[str]:
    """Write what an attempt with these answers would have left into a folder.

    Raises:
        PrerequisiteError: environment or data are not here.
        VerificationError: Inspect cannot read the samples.
    """
    arguments: Arguments = arguments_of(Inspect(), context.job)
    places.require(context.job.id, arguments.places)
    evaluator = load_evaluator(Inspect.name)
    cache = linked(context, arguments, scratch)
    asked = child_job(replace(context, folder=folder), arguments)
    told = scratch.path / "job.json"
    record = {"record": str((context.folder / SAMPLES).resolve())}
    write_json_atomic(told, {**asked, "base_url": NOWHERE, **record})
    said = surroundings(evaluator, scratch, {CACHE_VARIABLE: str(cache)}) | {KEY_VARIABLE: "none"}
    Scorer(evaluator, PROGRAM, said, scratch.folder("work")).run([told])
    return []
