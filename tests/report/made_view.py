"""Views made for the report's tests: rows of every status, with what a hostile model could answer."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.record.sample import Sample, Seconds, Status
from assay.record.statistics import Bounds, mean_interval
from assay.view.view import Benchmark, Exchange, Fact, Kind, Message, Part

HOSTILE = (
    "<script>window.broken = 'script'</script>",
    "<img src=x onerror=\"window.broken = 'image'\">",
    "</script><script>window.broken = 'end'</script>",
    '"><svg onload="window.broken = \'svg\'">',
    '<a href="javascript:window.broken = 1">javascript:window.broken = 1</a>',
    "{{ 7 * 7 }} {% include 'x' %} <!-- ]]> -->",
    "\u202eturned round\u202c \x00\x1b[31m \ud800 lone",
)
FAMILIES = ("arithmetic", "sorting", "letters")


@dataclass
class MadeView:
    """A view over rows that are at hand; see `assay.view.view.View`."""

    rows: list[tuple[Sample, Exchange | None]]
    run: Path = Path("made.run")
    kind: Kind = "profile"
    name: str = "made"
    description: str = "rows made for a test"
    status: str = "partial"
    started: str | None = "2026-11-30T06:00:00Z"
    ended: str | None = "2026-11-30T06:12:34Z"
    model: str = "made-model"
    server: str | None = "made-server-0123456789abcdef"
    told: tuple[Fact, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> tuple[Fact, ...]:
        return self.told

    def benchmarks(self) -> tuple[Benchmark, ...]:
        groups: dict[tuple[str, str], list[Sample]] = {}
        for sample, _ in self.rows:
            groups.setdefault((sample.entry, sample.family), []).append(sample)
        return tuple(benchmark(key, found, self.conditions) for key, found in groups.items())

    def samples(self) -> Iterator[Sample]:
        return (sample for sample, _ in self.rows)

    def exchanges(self) -> Iterator[tuple[Sample, Exchange | None]]:
        return iter(self.rows)

    def exchange(self, sample: Sample) -> Exchange | None:
        return next(exchange for found, exchange in self.rows if found == sample)

    def summary(self) -> Mapping[str, Any]:
        return {}


def benchmark(key: tuple[str, str], rows: list[Sample], conditions: Mapping[str, str]) -> Benchmark:
    rewards = [row.reward or 0.0 for row in rows]
    found = mean_interval(rewards, [row.cluster for row in rows])
    count = {
        status: sum(row.status == status for row in rows)
        for status in ("scored", "errored", "truncated", "missing")
    }
    return Benchmark(
        name="/".join(key),
        entry=key[0],
        family=key[1],
        metric="accuracy",
        binary=set(rewards) <= {0.0, 1.0},
        score=sum(rewards) / len(rewards),
        bounds=None if found.low is None or found.high is None else Bounds(low=found.low, high=found.high),
        confidence=0.95,
        baseline=0.25,
        counts={
            "planned": len(rows),
            **count,
            "empty": sum(row.empty for row in rows),
            "thought_only": 0,
            "unparsed": None,
        },
        conditions=conditions,
    )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def row(
    number: int,
    answer: str = "The answer is 4.",
    reward: float | None = 1.0,
    status: Status = "scored",
    error: str | None = None,
    thinking: str | None = None,
    question: str | None = None,
    tokens: int | None = 12,
    started: float | None = None,
    seconds: float = 1.5,
) -> tuple[Sample, Exchange]:
    """One row and its exchange; its task and family follow from the number."""
    family = FAMILIES[number % len(FAMILIES)]
    asked = question or f"What is {number} plus {number}?"
    answered = status in ("scored", "truncated")
    sample = Sample(
        entry="made",
        task_key=f"{family}/{number}",
        rollout=0,
        seed=None,
        family=family,
        cluster=digest(asked),
        prompt_digest=digest(asked),
        answer_digest=digest(answer) if answered else None,
        output_digest=digest(answer + (thinking or "")) if answered else None,
        reward=reward if answered else None,
        rewards={"accuracy": reward} if answered and reward is not None else {},
        status=status,
        error=error,
        empty=answered and not answer,
        finish_reason="length" if status == "truncated" else "stop" if answered else None,
        stop_condition=None,
        prompt_tokens=40,
        completion_tokens=tokens if answered else None,
        turns=1,
        attempts=1,
        seconds=Seconds(agent_s=seconds * 0.9, scoring_s=seconds * 0.1, total_s=seconds),
        record="made/results.jsonl",
        line=number + 1,
    )
    messages = [Message("system", "You are terse."), Message("user", asked)]
    if answered:
        messages.append(Message("assistant", answer, thinking))
    exchange = Exchange(
        messages=tuple(messages),
        target=str(2 * number),
        parts=(Part("accuracy", reward, 1.0),) if answered else (),
        scorer=f"compared with {2 * number}" if answered else None,
        error=error,
        started=number * 0.5 if started is None else started,
        spans={"generation": seconds * 0.9, "scoring": seconds * 0.1},
    )
    return sample, exchange


def plain(count: int, seed: int = 0, better: float = 0.7) -> list[tuple[Sample, Exchange | None]]:
    """So many rows, most of them scored, a few of every other status; equal for equal arguments."""
    chance = random.Random(seed)
    found: list[tuple[Sample, Exchange | None]] = []
    clock = [0.0] * 8
    for number in range(count):
        draw = chance.random()
        status: Status = (
            "errored"
            if draw < 0.02
            else "missing"
            if draw < 0.03
            else "truncated"
            if draw < 0.08
            else "scored"
        )
        tokens = 512 if status == "truncated" else int(chance.lognormvariate(4.4, 0.7)) + 1
        seconds = tokens / 60 + chance.random()
        lane = clock.index(min(clock))
        right = status == "scored" and chance.random() < better
        said = f"Step by step: {number} and {number} make {2 * number}. " * (1 + tokens // 30)
        found.append(
            row(
                number,
                answer=said + f"So the answer is {2 * number if right else chance.randrange(99)}.",
                reward=float(right),
                status=status,
                error="ConnectionError: the server closed the connection" if status == "errored" else None,
                thinking=f"Twice {number}. " * (tokens // 10),
                tokens=tokens,
                started=clock[lane],
                seconds=seconds,
            )
        )
        clock[lane] += seconds
    return found


def hostile() -> list[tuple[Sample, Exchange | None]]:
    """A row for each hostile text, which stands wherever a run can put a text."""
    found: list[tuple[Sample, Exchange | None]] = []
    for number, text in enumerate(HOSTILE):
        sample, exchange = row(number, answer=text, thinking=text, question=text, error=None)
        # What two runs are paired by, and linked to, is what a database takes.
        name = text.replace("\ud800", "")
        changes = {"family": name, "task_key": f"{name}/{number}", "record": name, "finish_reason": text}
        bad = Exchange(
            messages=(Message(text, text, text, (text,)), *exchange.messages),
            target=text,
            parts=(Part(text, 1.0, 1.0),),
            scorer=text,
            error=text,
            started=0.0,
            spans={text: 1.0},
        )
        found.append((sample.model_copy(update=changes), bad))
    return found
