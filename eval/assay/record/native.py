"""One rollout as a native record tells it, in the words that every evaluator's records share.

A dialect's reader (`assay.record.episodes`, `assay.record.results_v0`) turns lines into these; nothing else
in the core knows a native field's name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from assay.digest import sha256_bytes, value_digest
from assay.errors import VerificationError
from assay.record.sample import Seconds

ERROR_CHARACTERS = 500


class Row(BaseModel):
    """One line of a native record.

    Attributes:
        line: 1-based.
        key: The task's key.
        task_hash: Upstream's own digest of the task's data; None where the record has none.
        ok: The rollout came to its end and was scored.
        error: Kind and message of what failed it.
        truncated: A limit ended it: of tokens, turns, or context.
        finish_reason: Of the last model call that was answered.
        stop_condition: Why the rollout ended, in the evaluator's word.
        rewards: Each score by name, as far as scores were given; also those of a rollout that failed later.
        reward: Their weighted sum.
        counted: Rows that the upstream guide's reward command counts for it: a failure that left no trace is
            none.
        prompt_digest: SHA-256 over the canonical JSON of the messages before the model's first.
        answer_digest: SHA-256 of the text of the model's last message; None when there is none.
        empty: That message has no visible text, or there is none.
        thinking: The model thought apart from its answers; None where it generated nothing.
        output_digest: SHA-256 over all that the model generated, thinking and tool calls included.
        prompt_tokens: Tokens read, those of earlier turns counted once.
        completion_tokens: Tokens generated.
        turns: Messages the model generated.
        attempts: Model calls made.
        seconds: Where the time went.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    line: int
    key: str
    task_hash: str | None = None
    ok: bool = False
    error: str | None = None
    truncated: bool = False
    finish_reason: str | None = None
    stop_condition: str | None = None
    rewards: Mapping[str, float] = {}
    reward: float = 0.0
    counted: int = 1
    prompt_digest: str | None = None
    answer_digest: str | None = None
    empty: bool = True
    thinking: bool | None = None
    output_digest: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    turns: int | None = None
    attempts: int = 0
    seconds: Seconds = Seconds()


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every whole line of a JSONL file with its number; nothing when there is no file.

    Raises:
        VerificationError: a line is not a JSON object.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        # Line by line: the traces of a long run need not fit into memory.
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                value = well_formed(line, json.loads(line))
                if not isinstance(value, dict):
                    raise ValueError("it is not a JSON object")
            except (ValueError, RecursionError) as error:
                raise VerificationError(f"{path} line {number} is not a row", str(error)) from error
            yield number, value


def well_formed(line: bytes, value: Any) -> Any:
    """The value with U+FFFD for half a surrogate pair, which JSON can escape and no text can hold."""
    if b"\\ud" not in line.lower():
        return value
    return json.loads(encodable(json.dumps(value, ensure_ascii=False)))


def encodable(text: str) -> str:
    """The text with U+FFFD for half a surrogate pair, which no encoding has; a whole pair is one."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text, that of its parts joined; empty when it has none."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def prompt_digest(messages: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 over the canonical JSON of messages, each as role and text."""
    return value_digest([{"role": message["role"], "content": text_of(message)} for message in messages])


def answer_digest(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """SHA-256 of the text of the last message that the model generated; None when there is none."""
    return sha256_bytes(text_of(messages[-1]).encode("utf-8")) if messages else None


def is_empty(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last message that the model generated shows nothing."""
    return not messages or not text_of(messages[-1]).strip()


def has_thought(messages: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether any message holds thinking apart from its text; None when the model generated none."""
    if not messages:
        return None
    return any(str(message.get("reasoning_content") or "").strip() for message in messages)


def output_digest(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """SHA-256 over what the model generated in a rollout; None when that is nothing.

    The ids of tool calls are left out: servers draw them at random.
    """
    if not messages:
        return None
    return value_digest(
        [
            {
                "content": text_of(message),
                "reasoning": message.get("reasoning_content") or "",
                "calls": [_call(call) for call in message.get("tool_calls") or []],
            }
            for message in messages
        ]
    )


def _call(call: Mapping[str, Any]) -> list[Any]:
    function = call.get("function") or call
    return [function.get("name"), function.get("arguments")]


def finite(value: Any, what: str) -> float:
    """A number that was given as one; ValueError for anything else, infinities included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} is not finite")
    return number


def span(timing: Mapping[str, Any], name: str) -> float | None:
    """A measured stretch in seconds; None where it was not measured."""
    found = timing.get(name) or {}
    start, end = found.get("start"), found.get("end")
    # A stretch that was never begun has zeros for both.
    if start is None or end is None or not end:
        return None
    return round(float(end) - float(start), 4)


def seconds(parts: Mapping[str, float | None]) -> Seconds:
    """The measured stretches and their sum."""
    known = [value for value in parts.values() if value is not None]
    total = round(math.fsum(known), 4) if known else None
    return Seconds(**{f"{name}_s": value for name, value in parts.items()}, total_s=total)
