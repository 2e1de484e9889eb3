"""Suites of the mock backend for the real command, and a server that counts what it is asked."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from standin import Reply, StandIn


def value(item: Any) -> str:
    """A value as TOML has it."""
    if isinstance(item, Mapping):
        return "{" + ", ".join(f"{name} = {value(each)}" for name, each in item.items()) + "}"
    return json.dumps(item)


def write(
    path: Path, targets: Mapping[str, Mapping[str, Any]], jobs: list[Mapping[str, Any]], **running: Any
) -> Path:
    """A suite's file with these targets and jobs; `running` is how the coordinator works."""
    lines = ['description = "made by a test"', "", "[running]"]
    lines += [f"{name} = {value(item)}" for name, item in running.items()]
    for name, target in targets.items():
        lines += ["", f"[target.{name}]", *(f"{key} = {value(item)}" for key, item in target.items())]
    for job in jobs:
        lines += ["", "[[job]]", *(f"{key} = {value(item)}" for key, item in job.items())]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def quiet(name: str = "quiet", **arguments: Any) -> dict[str, Any]:
    """A job that asks nobody."""
    given = {"items": 6, **arguments}
    return {"id": name, "backend": "mock", "dataset": "mock", "target": "nobody", "backend_args": given}


def asking(name: str = "asking", target: str = "local", **arguments: Any) -> dict[str, Any]:
    """A job of which each rollout is a request."""
    given = {"items": 6, "ask": True, **arguments}
    return {"id": name, "backend": "mock", "dataset": "mock", "target": target, "backend_args": given}


NOBODY = {"nobody": {"protocol": "none", "max_concurrency": 4}}


class Counting(StandIn):
    """A server that counts each request by its bytes, and answers it always the same way."""

    def __init__(self, delay_s: float = 0.0, **fields: Any) -> None:
        super().__init__(reply=self._answer, **fields)
        self.asked: Counter[str] = Counter()
        self.delay_s = delay_s

    def _answer(self, number: int, body: dict[str, Any]) -> Reply:
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        self.asked[digest] += 1
        return Reply(text=f"answer {digest[:8]}", delay_s=self.delay_s)

    def target(self, slots: int, **fields: Any) -> dict[str, Any]:
        """This server as a suite's target."""
        return {"base_url": self.base_url, "model": self.model, "max_concurrency": slots, **fields}


def findings(run: Path) -> tuple[Any, list[Any]]:
    """What a run found, without what tells of its attempts: a resumed one's is an undisturbed one's."""
    summary = json.loads((run / "summary.json").read_bytes())
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_bytes().splitlines()]
    for row in rows:
        for name in ("record", "line", "attempts", "seconds"):
            del row[name]
    return _without(summary), rows


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        told = ("effort", "artefacts", "seconds", "retained")
        return {name: _without(item) for name, item in value.items() if name not in told}
    return [_without(item) for item in value] if isinstance(value, list) else value
