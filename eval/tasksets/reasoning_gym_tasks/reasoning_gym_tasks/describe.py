"""`python -m reasoning_gym_tasks.describe CONFIG.toml`: the tasks a configuration asks for, without a model.

Prints one JSON object: every task in order with its key and the digest of its prompt, duplicates, and for
each family the baseline of a constant answer. A run learns from it what to expect, an audit what should have
been there. The process starts itself again under the configuration's hash seed when it runs under another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasoning_gym_tasks.baseline import majority
from reasoning_gym_tasks.questions import FamilyQuestions, draw, require_hash_seed
from reasoning_gym_tasks.selection import Selection, SelectionError

SCHEMA = "assay/tasks/v1"
TASKSET = "reasoning_gym_tasks"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the description of the configuration's tasks; exit code 0, or 2 with the reason on stderr."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {TASKSET}.describe", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "config", type=Path, help="a Verifiers configuration whose [env.taskset] is this taskset"
    )
    path = parser.parse_args(argv).config
    try:
        selection = read_selection(path)
        if not _under(selection.hash_seed):
            command = [sys.executable, "-m", f"{TASKSET}.describe", str(path)]
            environment = {**os.environ, "PYTHONHASHSEED": str(selection.hash_seed)}
            return subprocess.run(command, env=environment, check=False).returncode
        description = describe(selection)
    except (OSError, tomllib.TOMLDecodeError, SelectionError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    json.dump(description, sys.stdout, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")
    return 0


def read_selection(path: Path) -> Selection:
    """The selection in a Verifiers TOML file; OSError, TOMLDecodeError or SelectionError when it has none."""
    taskset = tomllib.loads(path.read_text("utf-8")).get("env", {}).get("taskset", {})
    if taskset.get("id") != TASKSET:
        raise SelectionError(f"env.taskset.id is {taskset.get('id')!r}, not {TASKSET!r}")
    return Selection.from_mapping(taskset)


def describe(selection: Selection) -> dict[str, Any]:
    """The description as JSON values; SelectionError when the selection cannot be drawn."""
    drawn = draw(selection)
    return {
        "schema": SCHEMA,
        "taskset": {"name": TASKSET, "version": version("reasoning-gym-tasks")},
        "library": {"name": "reasoning-gym", "version": version("reasoning-gym")},
        "prompt": selection.prompt,
        "seed": selection.seed,
        "example_seed": selection.example_seed,
        "hash_seed": selection.hash_seed,
        "n_shot": selection.n_shot,
        "families": {family.family.name: _family(family, selection.seed) for family in drawn},
        "tasks": [task for family in drawn for task in _tasks(family, selection.system_prompt)],
    }


def prompt_digest(messages: Sequence[tuple[str, str]]) -> str:
    """SHA-256 over the canonical JSON (sorted keys, no spaces, UTF-8) of `[{"content":…,"role":…}, …]`."""
    value = [{"role": role, "content": content} for role, content in messages]
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _under(hash_seed: int) -> bool:
    """Whether this process runs under that hash seed; SelectionError when it should but does not."""
    try:
        require_hash_seed(hash_seed)
    except SelectionError:
        if os.environ.get("PYTHONHASHSEED") == str(hash_seed):
            raise
        return False
    return True


def _family(drawn: FamilyQuestions, seed: int) -> dict[str, Any]:
    baseline = majority(drawn, seed)
    return {
        "tasks": len(drawn.tasks),
        "distinct": len({task.digest for task in drawn.tasks}),
        "examples": len(drawn.examples),
        "examples_passed_over": drawn.passed_over,
        "baseline": None if baseline is None else {"answer": baseline.answer, "score": baseline.score},
    }


def _tasks(drawn: FamilyQuestions, system_prompt: str) -> list[dict[str, Any]]:
    return [
        {
            "key": task.key,
            "family": task.family,
            "index": task.index,
            "prompt_digest": prompt_digest((("system", system_prompt), *drawn.turns(task))),
            "question_digest": task.digest,
            "duplicate_of": task.duplicate_of,
            "duplicates": task.duplicates,
        }
        for task in drawn.tasks
    ]


if __name__ == "__main__":
    raise SystemExit(main())
