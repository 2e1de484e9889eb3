"""EvalScope reviews saved predictions once more (`eval/evaluators/evalscope_rescore.py`)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from assay.audit.rescore.child import Scorer
from assay.backends import places
from assay.backends.base import Context, Lane, arguments_of
from assay.backends.evalscope import KEY_VARIABLE, EvalScope, environment_of, local_places
from assay.backends.evalscope_arguments import Arguments
from assay.backends.evalscope_child import child_job, environment
from assay.backends.evalscope_records import CALLS, FAILURES, MODEL, TASKS
from assay.evaluator import load_evaluator
from assay.files import write_json_atomic
from assay.run.key import Key
from assay.run.native import Scratch

__all__ = ["TASKS", "score"]

PROGRAM = "evalscope_rescore.py"
NOBODY = Lane("http://127.0.0.1:1/v1", "nobody", Key("none"))


def score(context: Context, folder: Path, scratch: Scratch) -> list[str]:
    """Write what an attempt with these predictions would have left into a folder.

    Raises:
        PrerequisiteError: environment or data are not here.
        VerificationError: EvalScope cannot read the predictions.
    """
    arguments: Arguments = arguments_of(EvalScope(), context.job)
    places.require(context.job.id, local_places(context.job, arguments))
    for name in (FAILURES, CALLS):
        if (context.folder / name).is_file():
            shutil.copyfile(context.folder / name, folder / name)
    predictions = Path("predictions") / MODEL
    (folder / predictions).mkdir(parents=True)
    for path in sorted((context.folder / predictions).glob("*.jsonl")):
        shutil.copyfile(path, folder / predictions / path.name)
    evaluator = load_evaluator(environment_of(context.job, arguments))
    asked = replace(context, folder=folder, lane=NOBODY)
    job = child_job(asked, arguments, scratch)
    told = scratch.path / "job.json"
    write_json_atomic(told, job)
    said = environment(asked, evaluator, arguments, scratch) | {KEY_VARIABLE: NOBODY.key.reveal()}
    Scorer(evaluator, PROGRAM, said, scratch.folder("work")).run([told])
    return []
