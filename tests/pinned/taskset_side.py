"""Run by the evaluator's own Python: load tasksets as upstream does and print what was found, as JSON.

The argument is a JSON list of `[env.taskset]` tables. Each gives its number of tasks, the keys of the first
three in order and in the native shuffle, and the first task's data; or the error that loading it raised.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

SHOWN = 3


def found(table: dict[str, Any]) -> dict[str, Any]:
    try:
        taskset = load_taskset(taskset_config_type(table["id"]).model_validate(table))
        tasks = list(taskset)
        shuffled = list(taskset.shuffle().head(SHOWN))
    except (OSError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "tasks": len(tasks),
        "distinct": len({task.key for task in tasks}),
        "first": [task.key for task in tasks[:SHOWN]],
        "shuffled": [task.key for task in shuffled],
        "data": tasks[0].data.model_dump(mode="json"),
    }


if __name__ == "__main__":
    json.dump([found(table) for table in json.loads(sys.argv[1])], sys.stdout)
