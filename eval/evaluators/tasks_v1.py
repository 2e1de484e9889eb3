"""The tasks that Verifiers 0.3 or 0.4 would ask, listed without a model: `python -P tasks_v1.py FILE …`.

It runs in an evaluator's own environment. The files are those that the command is given; the command's own
code parses them, the taskset's own code loads the data, and shuffling and cutting are the taskset's too, in
the order of the command's runner. Prints one JSON object: tasks in their order, families without baselines.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic_config import cli
from verifiers.v1.cli.resolve import narrow_config, plugin_errors
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.utils.loaders import load_taskset

# What two tasks that ask the same may still differ in.
LABELS = frozenset({"idx", "name", "description"})


def main(files: list[str]) -> None:
    """List the tasks of the configuration in these files."""
    words = [word for file in files for word in ("@", file)]
    sys.argv = ["eval", *words, "--no-rich", "--no-push"]
    with plugin_errors():
        config = cli(narrow_config(EvalConfig, sys.argv[1:]))
    first: dict[str, str] = {}
    selected = choose(load_taskset(config.env.taskset), config)
    tasks = [described(task, config.env.taskset.id, first) for task in selected]
    json.dump({"tasks": tasks, "families": {}}, sys.stdout)


def choose(taskset: Any, config: Any) -> Iterable[Any]:
    """The tasks that the configuration selects: a table `[select]` in 0.4, two keys in 0.3."""
    endless = f"{config.env.taskset.id} never ends: say how many tasks"
    if hasattr(config, "select"):
        selected = taskset.select(config.select)
        if not selected.bounded:
            raise SystemExit(f"{endless} with select.limit")
        return cast("Iterable[Any]", selected)
    if config.num_tasks is None and taskset.INFINITE:
        raise SystemExit(f"{endless} with num_tasks")
    selected = taskset.shuffle() if config.shuffle else taskset
    return cast("Iterable[Any]", selected if config.num_tasks is None else selected.head(config.num_tasks))


def described(task: Any, family: str, first: dict[str, str]) -> dict[str, Any]:
    """One task; `first` remembers who asked a question first.

    The messages are the harness's to word, so no digest of them is told: the task's own hash, which every
    row of the record repeats, covers its data whole.
    """
    data = task.data.model_dump(mode="json", exclude_none=True)
    digest = question(data)
    earlier = first.setdefault(digest, task.key)
    return {
        "key": task.key,
        "family": family,
        "prompt_digest": None,
        "task_hash": task.hash,
        "question_digest": digest,
        "duplicate_of": None if earlier == task.key else earlier,
    }


def question(data: Mapping[str, Any]) -> str:
    """The digest of what a task asks: its data without what merely names it."""
    asked = {name: value for name, value in data.items() if name not in LABELS}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


if __name__ == "__main__":
    main(sys.argv[1:])
