"""Runs as a comparison reads them, made of a few words: no file, no evaluator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.record.sample import Sample, Seconds
from assay.view.view import Benchmark, Exchange, Fact, Kind, Message

CONDITIONS = {"data.digest": "d1", "sampling.temperature": "0", "limits.max_tokens": "256"}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def row(
    task: str,
    reward: float | None = 1.0,
    rollout: int = 0,
    entry: str = "sums",
    family: str = "add",
    question: str | None = None,
    prompt: str | None = "",
    said: str | None = None,
    tokens: int | None = 10,
    seconds: float | None = 0.5,
    truncated: bool = False,
    missing: bool = False,
) -> Sample:
    """A rollout: errored where it has no reward, unless it is missing."""
    failed = "missing" if missing else "errored"
    return Sample(
        entry=entry,
        task_key=task,
        rollout=rollout,
        seed=None,
        family=family,
        cluster=digest(question or task),
        prompt_digest=None if prompt is None else digest(prompt + task),
        answer_digest=None,
        output_digest=None if said is None else digest(said),
        reward=reward,
        rewards={},
        status=failed if reward is None else "truncated" if truncated else "scored",
        error="no answer" if reward is None and not missing else None,
        empty=False,
        finish_reason="length" if truncated else "stop",
        stop_condition=None,
        prompt_tokens=5,
        completion_tokens=tokens,
        turns=1,
        attempts=1,
        seconds=Seconds(agent_s=seconds),
        record=f"{entry}/traces.jsonl",
        line=1,
    )


def rows(rewards: Sequence[float | None], **words: Any) -> list[Sample]:
    """A rollout each, of tasks `t0`, `t1`, ..."""
    return [row(f"t{number}", reward, **words) for number, reward in enumerate(rewards)]


def numbered(samples: Sequence[Sample]) -> list[Sample]:
    """The same rows, each with the line that it has among them."""
    return [sample.model_copy(update={"line": number}) for number, sample in enumerate(samples, 1)]


@dataclass
class Made:
    """A `View` of rows that are at hand."""

    rows: list[Sample]
    conditions: Mapping[str, str] = field(default_factory=lambda: dict(CONDITIONS))
    metric: str | None = "right"
    texts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    unsound: tuple[Fact, ...] = ()
    run: Path = Path("/runs/made")
    kind: Kind = "profile"
    name: str = "made"
    description: str = "made of words"
    status: str = "done"
    started: str | None = None
    ended: str | None = None
    model: str = "m"
    server: str | None = None

    def facts(self) -> tuple[Fact, ...]:
        return self.unsound

    def benchmarks(self) -> tuple[Benchmark, ...]:
        found = dict.fromkeys((sample.entry, sample.family) for sample in self.rows)
        return tuple(
            Benchmark(
                name=f"{entry}/{family}",
                entry=entry,
                family=family,
                metric=self.metric,
                binary=None,
                score=None,
                bounds=None,
                confidence=0.95,
                baseline=None,
                counts={},
                conditions=self.conditions,
            )
            for entry, family in found
        )

    def samples(self) -> Iterator[Sample]:
        yield from self.rows

    def exchange(self, sample: Sample) -> Exchange | None:
        text = self.texts.get((sample.task_key, sample.rollout))
        if text is None:
            return None
        return Exchange(messages=(Message("user", sample.task_key), Message("assistant", text)))

    def exchanges(self) -> Iterator[tuple[Sample, Exchange | None]]:
        for sample in self.rows:
            yield sample, self.exchange(sample)

    def summary(self) -> Mapping[str, Any]:
        return {}


def made(rewards: Sequence[float | None], **words: Any) -> Made:
    """A run with one benchmark, a task for each reward."""
    return Made(rows(rewards, **words))


def among(view: Made, **words: Any) -> Made:
    """The same view, but for what is named."""
    return replace(view, **words)
