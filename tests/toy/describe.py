"""`python -m toy_tasks.describe CONFIG.toml`: the toy taskset's tasks, as the real one tells its own."""

from __future__ import annotations

import hashlib
import json
import sys
import time
import tomllib
from pathlib import Path

from toy_tasks.tasks import Task, load


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def described(task: Task, first: dict[str, str]) -> dict[str, object]:
    prompt = json.dumps(task.prompt, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = sha256(task.question)
    earlier = first.setdefault(digest, task.key)
    return {
        "key": task.key,
        "family": task.family,
        "prompt_digest": sha256(prompt),
        "question_digest": digest,
        "duplicate_of": None if earlier == task.key else earlier,
    }


config = tomllib.loads(Path(sys.argv[1]).read_text("utf-8"))
toy = config.get("toy", {})
time.sleep(toy.get("describe_s", 0))
if "misdescribed" in toy:
    sys.exit(toy["misdescribed"])
tasks = load(config)
first: dict[str, str] = {}
families = {task.family: {"baseline": {"answer": "1", "score": 0.5}} for task in tasks}
json.dump({"tasks": [described(task, first) for task in tasks], "families": families}, sys.stdout)
