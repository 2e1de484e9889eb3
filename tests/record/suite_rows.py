"""Rows of suites for tests, and the suite they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.record.sample import Sample, Seconds, Status
from assay.suite.job import Job
from assay.suite.suite import Suite

PRIMARY = "accuracy"


def row(task: int | str, status: Status = "scored", reward: float = 1.0, **changed: Any) -> Sample:
    """A rollout that came to that."""
    answered = status in ("scored", "truncated")
    values: dict[str, Any] = {
        "entry": "first",
        "task_key": str(task),
        "rollout": 0,
        "seed": None,
        "family": "set",
        "cluster": f"question {task}",
        "prompt_digest": None,
        "answer_digest": f"answer {task}" if answered else None,
        "output_digest": f"output {task}" if answered else None,
        "reward": reward if answered else None,
        "rewards": {PRIMARY: reward} if answered else {},
        "status": status,
        "error": "Timeout: too slow" if status == "errored" else None,
        "empty": False,
        "finish_reason": "length" if status == "truncated" else "stop" if answered else None,
        "stop_condition": None,
        "prompt_tokens": 10 if answered else None,
        "completion_tokens": 5 if answered else None,
        "turns": 1 if answered else None,
        "attempts": 0 if status == "missing" else 1,
        "seconds": Seconds(),
        "record": None if status == "missing" else "first/attempt-1/records.jsonl",
        "line": None if status == "missing" else int(task) + 1,
    }
    return Sample.model_validate(values | changed)


def suite(*jobs: str, retention: str = "all", **generation: Any) -> Suite:
    """A suite of mock jobs with those ids over one target."""
    return Suite.model_validate(
        {
            "name": "small",
            "description": "a suite of a test",
            "pins": "production",
            "running": {"retention": retention},
            "targets": [{"name": "nobody", "protocol": "none", "model": "m", "max_concurrency": 2}],
            "jobs": [table(job, generation) for job in jobs or ("first",)],
        }
    )


def table(job: str, generation: Mapping[str, Any]) -> dict[str, Any]:
    """A job's table."""
    return {"id": job, "backend": "mock", "dataset": "set", "target": "nobody", "generation": generation}


def job_of(suite: Suite, name: str = "first") -> Job:
    """The job of that id."""
    return next(job for job in suite.jobs if job.id == name)
