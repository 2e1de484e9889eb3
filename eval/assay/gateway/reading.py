"""What an answer's bytes say: whether it is whole, whether it is an error in good dress, and its usage.

Servers that die in the middle of a stream often end it in good order, and some report an error with status
200: neither is an answer, and neither is ever kept. A stream is whole when it says so: by `[DONE]`, by the
last event of the newer protocols, or, from servers that leave that out, by a finish reason for each choice.
Streams are searched as bytes and parsed only where something stands: an answer can have a hundred thousand
events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DONE = b"[DONE]"
ENDS = frozenset({"message_stop", "response.completed", "response.incomplete"})
STREAM = "text/event-stream"


@dataclass(frozen=True)
class Reading:
    """What an answer says.

    Attributes:
        fault: Why it is no answer; empty when it is one.
        prompt_tokens: None where it does not say.
        completion_tokens: None where it does not say.
    """

    fault: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def read(content_type: str, body: bytes) -> Reading:
    """Read a good answer's body; it never raises, whatever the bytes."""
    return _stream(body) if content_type.lower().startswith(STREAM) else _whole(body)


def _whole(body: bytes) -> Reading:
    value = _object(body)
    if value is None:
        return Reading("it is no whole JSON object")
    if value.get("error") and "choices" not in value:
        return Reading(f"it says {_said(value['error'])}")
    return _counted([value])


def _stream(body: bytes) -> Reading:
    for value in _events(body, b'"error"'):
        if value.get("error") or value.get("type") == "response.failed":
            return Reading(f"its stream says {_said(value.get('error') or value)}")
    if not _ended(body):
        return Reading("its stream ends in the middle")
    return _counted(_events(body, b'"usage"', ends=True))


def _ended(body: bytes) -> bool:
    last = body.rfind(b"\ndata:")
    if last < 0 and not body.startswith(b"data:"):
        return False
    data = body[last + 1 :].removeprefix(b"data:").strip()
    if data == DONE:
        return True
    value = _object(data)
    if value is not None and value.get("type") in ENDS:
        return True
    reasons: dict[Any, Any] = {}
    for event in _events(body, b"finish_reason"):
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                index = choice.get("index")
                reasons[index] = reasons.get(index) or choice.get("finish_reason")
    return bool(reasons) and all(reasons.values()) and value is not None


def _events(body: bytes, word: bytes, ends: bool = False) -> Iterator[dict[str, Any]]:
    """The objects of the events that hold a word; with `ends`, of the first and the last such line alone."""
    start = body.find(word)
    if ends and start >= 0:
        lines = dict.fromkeys((_line(body, start), _line(body, body.rfind(word))))
    elif start >= 0:
        lines = dict.fromkeys(line for line in body.split(b"\n") if word in line)
    else:
        return
    for line in lines:
        name, _, data = line.strip().partition(b":")
        value = _object(data) if name == b"data" else None
        if value is not None:
            yield value


def _line(body: bytes, place: int) -> bytes:
    end = body.find(b"\n", place)
    return body[body.rfind(b"\n", 0, place) + 1 : len(body) if end < 0 else end]


def _counted(values: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Reading:
    """The last counts that the values give, by either protocol's names."""
    prompt = completion = None
    for value in values:
        for holder in (value, value.get("message"), value.get("response")):
            usage = holder.get("usage") if isinstance(holder, Mapping) else None
            if isinstance(usage, Mapping):
                prompt = _count(usage, "prompt_tokens", "input_tokens", prompt)
                completion = _count(usage, "completion_tokens", "output_tokens", completion)
    return Reading("", prompt, completion)


def _count(usage: Mapping[str, Any], name: str, other: str, before: int | None) -> int | None:
    value = usage.get(name, usage.get(other))
    return value if type(value) is int and value >= 0 else before


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _said(error: Any) -> str:
    message = error.get("message") if isinstance(error, Mapping) else error
    return f"{message}"[:200]
