"""EvalScope's own review of saved predictions: `python -P offline.py evalscope_rescore.py JOB.json`.

It runs in the evaluator's own environment, beside `evalscope_run.py`, whose job it is given, with `work_dir`
a folder that holds the run's predictions. What EvalScope has for it is used: predictions from a cache,
reviews made anew. Three things are otherwise. Samples without a prediction are not asked; a prediction says
nothing of its question, since what a record repeats of a sample would go before the sample that the data
give, its right answer included; and what would be asked is written down as in a run, to be compared.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalscope.api.evaluator.cache import ModelResult
from evalscope.api.registry import EVALUATOR_REGISTRY
from evalscope.config import TaskConfig
from evalscope.evaluator.evaluator import DefaultEvaluator
from evalscope.run import run_task


class Reviewer(DefaultEvaluator):
    """EvalScope's evaluator, which reviews what was predicted and asks nothing."""

    folder: Path
    program: Any

    def _collect_work_items(self, datasets: Mapping[str, Any]) -> Any:
        self.program.refuse(self.benchmark)
        lines = self.program.Lines(self.folder / "tasks.jsonl")
        for subset, samples in datasets.items():
            for sample in samples:
                lines.append(self.program.planned(subset, sample))
        context = super()._collect_work_items(datasets)
        context.work_items = [item for item in context.work_items if not item.needs_predict]
        return context


def main(path: str) -> int:
    """Review the saved predictions; 0 when EvalScope came to its end."""
    job = json.loads(Path(path).read_text("utf-8"))
    folder = Path(job["task"]["work_dir"])
    program = beside("evalscope_run.py")
    program.quieten(folder / "logs")
    Reviewer.folder, Reviewer.program = folder, program
    EVALUATOR_REGISTRY["default"] = Reviewer
    ModelResult.to_task_state = of_own_sample(ModelResult.to_task_state)
    key = os.environ.pop(program.KEY_VARIABLE)
    config = TaskConfig(api_key=key, use_cache=str(folder), rerun_review=True, **job["task"])
    if job["bfcl"] is not None:
        program.tame_bfcl(job["bfcl"], folder)
    try:
        run_task(config)
    except program.RefusedError as refused:
        (folder / "refused.txt").write_text(f"{refused}\n", "utf-8")
        return 2
    return 0


def of_own_sample(restore: Any) -> Any:
    """Restoring a prediction without what its record says of the sample, where the sample says it itself."""

    def restored(self: Any, dataset: Any) -> Any:
        saved, self.metadata = self.metadata or {}, None
        state = restore(self, dataset)
        if state is not None:
            for name, value in saved.items():
                state.metadata.setdefault(name, value)
        return state

    return restored


def beside(name: str) -> Any:
    """The program of that name beside this one, which `-P` keeps off the module path."""
    path = Path(__file__).with_name(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
