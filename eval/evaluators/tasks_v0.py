"""The tasks that Verifiers 0.1 would ask, listed without a model: `python -P tasks_v0.py LAUNCH.toml`.

It runs in an evaluator's own environment, beside `validate_v0.py`, with which the command's own code reads
the file. The environment's own loader makes the rows and the command's own method takes the first of them.
Prints one JSON object: tasks in their order, families without baselines.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import verifiers


def main(file: str) -> None:
    """List the tasks of the evaluation in the file."""
    config = validate_v0().read(file)
    environment = verifiers.load_environment(env_id=config.env_id, **config.env_args)
    rows = environment.get_eval_dataset(n=config.num_examples)
    first: dict[str, str] = {}
    tasks = [described(row, config.env_id, first) for row in rows]
    json.dump({"tasks": tasks, "families": {}}, sys.stdout)


def validate_v0() -> Any:
    """The program beside this one, which `-P` keeps off the module path."""
    path = Path(__file__).with_name("validate_v0.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(row: Mapping[str, Any], family: str, first: dict[str, str]) -> dict[str, Any]:
    """One task; `first` remembers who asked a question first. The whole prompt is in the row."""
    key = str(row["example_id"])
    digest = prompt_digest(row["prompt"])
    earlier = first.setdefault(digest, key)
    return {
        "key": key,
        "family": family,
        "prompt_digest": digest,
        "task_hash": None,
        "question_digest": digest,
        "duplicate_of": None if earlier == key else earlier,
    }


def prompt_digest(messages: Any) -> str:
    """SHA-256 over the canonical JSON of roles and texts."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    said = [{"role": message["role"], "content": text(message.get("content"))} for message in messages]
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def text(content: Any) -> str:
    """A message's text, joined where it comes in parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(part.get("text") or "") for part in content)


if __name__ == "__main__":
    main(sys.argv[1])
