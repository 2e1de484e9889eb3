"""From the evaluator's own record (`traces.jsonl` of Verifiers 0.4) to samples.

The native record stays authoritative and unchanged; a sample names the line it came from. What the record
does not say outright is derived so: truncation from the last good call's finish reason or the stop condition,
failure from `ok`, since the command itself exits 0 when every rollout failed.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.digest import sha256_bytes, value_digest
from assay.errors import VerificationError
from assay.record.sample import PlannedTask, Sample, Seconds, Status, TaskPlan

TRACES = "traces.jsonl"
TRUNCATING_STOPS = frozenset(
    {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"}
)


@dataclass(frozen=True)
class Episode:
    """One line of the native record.

    Attributes:
        line: 1-based.
        value: The JSON object.
    """

    line: int
    value: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The task's key."""
        data = self.value["task"]["data"]
        return str(data.get("key") or data["id"])


def read_episodes(traces: Path) -> Iterator[Episode]:
    """Every whole line of the native record; nothing when there is none.

    Raises:
        VerificationError: a line is not a JSON object with a task.
    """
    try:
        lines = traces.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, start=1):
        try:
            episode = Episode(number, json.loads(line))
            if not episode.key or not isinstance(episode.value["traces"], list):
                raise ValueError("it names no task")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise VerificationError(f"{traces} line {number} is not an episode", str(error)) from error
        yield episode


def samples_of(entry: str, tasks: TaskPlan, rollouts: int, traces: Path) -> tuple[list[Sample], list[str]]:
    """Every planned rollout as a sample, in the plan's order, and what in the record was not planned.

    Args:
        entry: The profile's entry.
        tasks: What the taskset says it asks.
        rollouts: Rollouts of each task.
        traces: The native record.

    Raises:
        VerificationError: the record cannot be read.
    """
    by_key: dict[str, list[Episode]] = defaultdict(list)
    for episode in read_episodes(traces):
        by_key[episode.key].append(episode)
    samples = []
    problems = []
    for task in tasks.tasks:
        episodes = by_key.pop(task.key, [])
        if len(episodes) > rollouts:
            problems.append(f"{entry}: task {task.key} has {len(episodes)} rows, planned {rollouts}")
        for number in range(rollouts):
            found = episodes[number] if number < len(episodes) else None
            samples.append(
                _missing(entry, task, number) if found is None else _sample(entry, task, number, found)
            )
    problems += [f"{entry}: task {key} was not planned" for key in by_key]
    problems += [
        f"{entry}: task {row.task_key} was asked with another prompt than the taskset makes"
        for row, task in zip(samples, (task for task in tasks.tasks for _ in range(rollouts)), strict=True)
        if row.prompt_digest not in (None, task.prompt_digest)
    ]
    return samples, problems


def _missing(entry: str, task: PlannedTask, rollout: int) -> Sample:
    return Sample(
        entry=entry,
        task_key=task.key,
        rollout=rollout,
        family=task.family,
        cluster=task.question_digest,
        prompt_digest=None,
        answer_digest=None,
        reward=None,
        rewards={},
        status="missing",
        error=None,
        empty=False,
        finish_reason=None,
        stop_condition=None,
        prompt_tokens=None,
        completion_tokens=None,
        attempts=0,
        seconds=Seconds(),
        line=None,
    )


def _sample(entry: str, task: PlannedTask, rollout: int, episode: Episode) -> Sample:
    try:
        trace = episode.value["traces"][-1] if episode.value["traces"] else {}
        calls = trace.get("calls", [])
        good = [call for call in calls if call.get("finish_reason")]
        finish = good[-1]["finish_reason"] if good else None
        stop = trace.get("stop_condition")
        rewards = {name: float(item["score"]) for name, item in trace.get("rewards", {}).items()}
        ok = bool(episode.value["ok"]) and bool(trace.get("ok")) and bool(rewards)
        answer = _answer(trace.get("nodes", []))
        return Sample(
            entry=entry,
            task_key=task.key,
            rollout=rollout,
            family=task.family,
            cluster=task.question_digest,
            prompt_digest=_prompt_digest(trace.get("nodes", [])),
            answer_digest=None if answer is None else sha256_bytes(answer.encode("utf-8")),
            reward=_reward(trace) if ok else None,
            rewards=rewards if ok else {},
            status=_status(ok, finish, stop),
            error=None if ok else _reason(episode.value, trace),
            empty=ok and not (answer or "").strip(),
            finish_reason=finish,
            stop_condition=stop,
            prompt_tokens=trace.get("num_input_tokens"),
            completion_tokens=trace.get("num_output_tokens"),
            attempts=len(calls),
            seconds=_seconds(trace.get("timing", {})),
            line=episode.line,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise VerificationError(
            f"the native record of entry {entry}, line {episode.line}, cannot be read",
            f"{type(error).__name__}: {error}",
        ) from error


def _status(ok: bool, finish: str | None, stop: str | None) -> Status:
    if not ok:
        return "errored"
    return "truncated" if finish == "length" or stop in TRUNCATING_STOPS else "scored"


def _reward(trace: Mapping[str, Any]) -> float:
    value = math.fsum(float(item["score"]) * float(item["weight"]) for item in trace["rewards"].values())
    if not math.isfinite(value):
        raise ValueError("a reward is not finite")
    return value


def _reason(episode: Mapping[str, Any], trace: Mapping[str, Any]) -> str:
    errors = [*trace.get("errors", []), *episode.get("errors", [])]
    if not errors:
        return "the evaluator gives no reason"
    first = errors[0]
    kind = first.get("type") or first.get("error_type") or "error"
    return f"{kind}: {first.get('message', '')}"[:500]


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def _answer(nodes: Sequence[Mapping[str, Any]]) -> str | None:
    sampled = [node["message"] for node in nodes if node.get("sampled") and node.get("message")]
    return _text(sampled[-1]) if sampled else None


def _prompt_digest(nodes: Sequence[Mapping[str, Any]]) -> str | None:
    prompt: list[dict[str, str]] = []
    for node in nodes:
        if node.get("sampled"):
            return value_digest(prompt)
        prompt.append({"role": node["message"]["role"], "content": _text(node["message"])})
    return None


def _span(timing: Mapping[str, Any], name: str) -> float | None:
    span = timing.get(name) or {}
    if span.get("start") is None or span.get("end") is None:
        return None
    return round(float(span["end"]) - float(span["start"]), 4)


def _seconds(timing: Mapping[str, Any]) -> Seconds:
    parts = {name: _span(timing, name) for name in ("boot", "setup", "agent", "scoring")}
    known = [value for value in parts.values() if value is not None]
    return Seconds(
        **{f"{name}_s": value for name, value in parts.items()},
        total_s=round(math.fsum(known), 4) if known else None,
    )
