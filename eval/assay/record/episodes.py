"""`traces.jsonl` of Verifiers 0.3.x (`eval`) and 0.4 (`vf-eval`): one line an episode, with its traces.

What the record does not say outright is derived so: truncation from the last good call's finish reason or the
stop condition, failure from `ok`, since the command itself exits 0 when every rollout failed. A scorer that
raised leaves rewards that are null. The newer version writes the token counts of a trace, the older only
those of its calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import VerificationError
from assay.record.native import (
    ERROR_CHARACTERS,
    Row,
    answer_digest,
    finite,
    has_thought,
    is_empty,
    output_digest,
    prompt_digest,
    read_objects,
    seconds,
    span,
)

TRACES = "traces.jsonl"
TRUNCATING_STOPS = frozenset(
    {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"}
)
STAGES = ("boot", "setup", "agent", "scoring")


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
    def traces(self) -> list[Any]:
        """Its agents' traces; a failure before the first leaves none."""
        found = self.value["traces"]
        if not isinstance(found, list):
            raise TypeError("traces is no list")
        return found


@dataclass(frozen=True)
class EpisodeReader:
    """Reads the records of one dialect.

    Attributes:
        own_key: The taskset's own key in a task's data goes before the key that Verifiers gives a task
            (which is the digest of its data, unless the taskset says otherwise).
    """

    own_key: bool

    def record(self, folder: Path) -> Path:
        """The record of one native invocation."""
        return folder / TRACES

    def rows(self, folder: Path) -> Iterator[Row]:
        """Every whole line; VerificationError where one cannot be read."""
        path = self.record(folder)
        for episode in read_episodes(path):
            try:
                key = self._key(episode)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise VerificationError(
                    f"{path} line {episode.line} is not an episode", f"it names no task: {error}"
                ) from error
            try:
                yield _row(key, episode)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
                raise VerificationError(
                    f"{path} line {episode.line}, cannot be read", f"{type(error).__name__}: {error}"
                ) from error

    def _key(self, episode: Episode) -> str:
        task = episode.value["task"]
        data = task["data"]
        given = [data.get("key"), data.get("id")] if self.own_key else []
        key = next((found for found in [*given, task.get("key"), task.get("hash")] if found), None)
        if not isinstance(key, str | int):
            raise ValueError("it has no key")
        return str(key)


def containers(path: Path) -> list[str]:
    """The id of every container that a rollout of the record ran in, each once; empty without a record."""
    found: dict[str, None] = {}
    for episode in read_episodes(path):
        for trace in episode.value.get("traces") or ():
            agent = trace.get("agent") if isinstance(trace, dict) else None
            runtime = agent.get("runtime") if isinstance(agent, dict) else None
            if isinstance(runtime, dict) and runtime.get("type") == "docker" and runtime.get("id"):
                found[str(runtime["id"])] = None
    return list(found)


def read_episodes(traces: Path) -> Iterator[Episode]:
    """Every whole line of the record; nothing when there is none.

    Raises:
        VerificationError: a line is not a JSON object with a task and traces.
    """
    for number, value in read_objects(traces):
        episode = Episode(number, value)
        try:
            _ = value["task"]["data"].get, episode.traces
        except (KeyError, TypeError, AttributeError) as error:
            raise VerificationError(
                f"{traces} line {number} is not an episode", f"it has no task: {error}"
            ) from error
        yield episode


def _row(key: str, episode: Episode) -> Row:
    value = episode.value
    trace = episode.traces[-1] if episode.traces else {}
    calls = trace.get("calls", [])
    nodes = trace.get("nodes", [])
    finish = next((call["finish_reason"] for call in reversed(calls) if call.get("finish_reason")), None)
    stop = trace.get("stop_condition")
    given = trace.get("rewards", {})
    scored = {name: item for name, item in given.items() if item is not None}
    ok = bool(value["ok"]) and bool(trace.get("ok")) and bool(given) and len(scored) == len(given)
    sampled = [node["message"] for node in nodes if node.get("sampled") and node.get("message")]
    timing = trace.get("timing", {})
    return Row(
        line=episode.line,
        key=key,
        task_hash=value["task"].get("hash"),
        ok=ok,
        error=None if ok else _reason(value, trace),
        truncated=finish == "length" or stop in TRUNCATING_STOPS,
        finish_reason=finish,
        stop_condition=stop,
        rewards={name: finite(item["score"], name) for name, item in scored.items()},
        reward=_weighted(scored),
        counted=len(episode.traces),
        prompt_digest=_prompt(nodes),
        answer_digest=answer_digest(sampled),
        empty=is_empty(sampled),
        thinking=has_thought(sampled),
        output_digest=output_digest(sampled),
        prompt_tokens=trace["num_input_tokens"] if "num_input_tokens" in trace else _read(nodes, calls),
        completion_tokens=trace["num_output_tokens"] if "num_output_tokens" in trace else _generated(calls),
        turns=len(sampled),
        attempts=len(calls),
        seconds=seconds({name: span(timing, name) for name in STAGES}),
    )


def _weighted(scored: Mapping[str, Mapping[str, Any]]) -> float:
    parts = (finite(item["score"], name) * finite(item["weight"], name) for name, item in scored.items())
    return finite(math.fsum(parts), "the reward")


def _reason(episode: Mapping[str, Any], trace: Mapping[str, Any]) -> str:
    errors = [*trace.get("errors", []), *episode.get("errors", [])]
    if not errors:
        return "the evaluator gives no reason"
    first = errors[0]
    kind = first.get("type") or first.get("error_type") or "error"
    return f"{kind}: {first.get('message', '')}"[:ERROR_CHARACTERS]


def _prompt(nodes: Sequence[Mapping[str, Any]]) -> str | None:
    first = next((index for index, node in enumerate(nodes) if node.get("sampled")), None)
    return None if first is None else prompt_digest([node["message"] for node in nodes[:first]])


def _generated(calls: Sequence[Mapping[str, Any]]) -> int | None:
    usages = [call["usage"] for call in calls if call.get("usage")]
    return sum(int(usage["completion_tokens"]) for usage in usages) if usages else None


def _read(nodes: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> int | None:
    """Tokens read, those of earlier turns once: each call's prompt beyond what the call before it left."""
    usage_of = {call["node"]: call["usage"] for call in calls if call.get("usage") and "node" in call}
    if not usage_of:
        return None
    return sum(
        max(0, _prompt_tokens(usage) - _before(nodes, usage_of, node)) for node, usage in usage_of.items()
    )


def _before(nodes: Sequence[Mapping[str, Any]], usage_of: Mapping[int, Mapping[str, Any]], node: int) -> int:
    seen = {node}
    above = nodes[node].get("parent")
    while above is not None and above not in seen:
        if above in usage_of:
            return _prompt_tokens(usage_of[above]) + int(usage_of[above]["completion_tokens"])
        seen.add(above)
        above = nodes[above].get("parent")
    return 0


def _prompt_tokens(usage: Mapping[str, Any]) -> int:
    return int(usage["prompt_tokens"]) + int(usage.get("cached_input_tokens") or 0)
