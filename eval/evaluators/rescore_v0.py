"""Saved answers scored once more by Verifiers 0.1: `python -P offline.py rescore_v0.py LAUNCH RESULTS OUT`.

It runs in an evaluator's own environment, beside `validate_v0.py`, with which the command's own code reads
the launch file. That version has no replay. So the environment's own loader makes the rows, with their gold
answers, as it did for the run; each saved completion is put into a fresh state of its row, and the
environment's own rubric scores it. OUT gets a line for each that was scored: line, reward, metrics.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import verifiers
from verifiers.utils.message_utils import normalize_messages


def main(launch: str, results: str, out: str) -> None:
    """Score the saved results."""
    config = validate_v0().read(launch)
    environment = verifiers.load_environment(env_id=config.env_id, **config.env_args)
    rows = {str(row["example_id"]): row for row in environment.get_eval_dataset(n=config.num_examples)}
    lines = asyncio.run(score(environment, config, rows, Path(results)))
    Path(out).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def validate_v0() -> Any:
    """The program beside this one, which `-P` keeps off the module path."""
    path = Path(__file__).with_name("validate_v0.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def score(
    environment: Any, config: Any, rows: Mapping[str, Any], results: Path
) -> list[dict[str, Any]]:
    """Score every completion of a row, where the rubric wants it together with the row's others."""
    states: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for number, line in enumerate(results.read_bytes().split(b"\n")[:-1], start=1):
        saved = json.loads(line)
        key = str(saved["example_id"])
        if saved.get("error") is None and key in rows:
            states[key].append((number, await state(environment, config, rows[key], saved)))
    for group in states.values():
        made = [one for _, one in group]
        if getattr(environment.rubric, "has_group_rewards", False):
            await environment.rubric.score_group(made)
        else:
            for one in made:
                await environment.rubric.score_rollout(one)
    return [
        {"line": number, "reward": one["reward"], "metrics": one["metrics"]}
        for group in states.values()
        for number, one in group
    ]


async def state(environment: Any, config: Any, row: Any, saved: Mapping[str, Any]) -> Any:
    """The state of a rollout that has ended with what was saved of it."""
    made = await environment.init_state(row, config.client_config, config.model, config.sampling_args)
    completion = normalize_messages(saved["completion"] or [], field_name="completion")
    steps = [message for message in completion if message.role == "assistant"]
    made["completion"] = completion
    made["trajectory"] = [
        {"prompt": made["prompt"], "completion": [message], "reward": None, "advantage": None, "extras": {}}
        for message in steps
    ]
    made["is_completed"], made["is_truncated"] = saved["is_completed"], saved["is_truncated"]
    made["stop_condition"] = saved.get("stop_condition")
    return made


if __name__ == "__main__":
    main(*sys.argv[1:])
