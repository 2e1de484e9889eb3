"""What an answer says, whole or streamed, in any of the protocols that evaluators speak.

Left out is what is another one in every answer: ids, dates, the order and the cut of a stream's pieces, and
usage, which is told apart. It never raises, whatever a server sent: what cannot be read is compared byte for
byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.digest import sha256_bytes, value_digest
from assay.record.native import encodable

STREAM = "text/event-stream"
SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class Choice:
    """One answer of a request.

    Attributes:
        content: The visible text.
        thinking: What the model thought apart from it.
        calls: Of tools: names and arguments, as the model wrote them. Their ids are drawn at random.
        finish: Why it ended; None where nobody tells.
    """

    content: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None


@dataclass(frozen=True)
class Said:
    """All that a request was answered.

    Attributes:
        choices: In the order of their numbers.
        rest: SHA-256 of the body, where it holds no choice that could be read; None otherwise.
        usage: The token counts that the server tells, by its names.
    """

    choices: tuple[Choice, ...] = ()
    rest: str | None = None
    usage: Mapping[str, int] | None = None

    @property
    def digest(self) -> str:
        """Of what is compared."""
        parts = [[each.content, each.thinking, each.calls, each.finish] for each in self.choices]
        return value_digest([parts, self.rest])


def said(path: str, content_type: str, body: bytes) -> Said:
    """What an answer's body says.

    Args:
        path: What was asked, e.g. "/v1/chat/completions".
        content_type: Of the answer.
        body: Of it, whole.
    """
    name = path.partition("?")[0]
    events = _events(body) if content_type.lower().startswith(STREAM) else [_object(body)]
    try:
        if name.endswith("/responses"):
            choices = _response(events)
        elif name.endswith("/messages"):
            choices = _blocks(events)
        else:
            choices = _choices(events)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        choices = ()
    return Said(choices, None if choices else sha256_bytes(body), _usage(events))


def differences(then: Said, now: Said) -> list[str]:
    """How two answers differ, in words; empty when they say the same.

    What the record does not tell (a finish reason) is not compared.
    """
    if then.rest or now.rest or len(then.choices) != len(now.choices):
        return [] if then == now or then.digest == now.digest else [_shapes(then, now)]
    found = []
    for index, (old, new) in enumerate(zip(then.choices, now.choices, strict=True)):
        place = f"choice {index}: " if len(then.choices) > 1 else ""
        found += [place + text for text in _differ(old, new)]
    return found


def _differ(old: Choice, new: Choice) -> Iterator[str]:
    for name in ("content", "thinking"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            at = next(
                (
                    place
                    for place, (one, other) in enumerate(zip(before, after, strict=False))
                    if one != other
                ),
                min(len(before), len(after)),
            )
            told = f"{_from(before, at)} was recorded, {_from(after, at)} is answered"
            yield f"{name} from character {at}: {told}"
    if old.calls != new.calls:
        yield f"tool calls: {_short(old.calls)} were recorded, {_short(new.calls)} are answered"
    if old.finish is not None and old.finish != new.finish:
        yield f"finish reason: {old.finish} was recorded, {new.finish or 'none'} is answered"


def _shapes(then: Said, now: Said) -> str:
    if then.choices and now.choices:
        return f"{len(then.choices)} choices were recorded, {len(now.choices)} are answered"
    return f"the answer's bytes: {then.digest[:16]} was recorded, {now.digest[:16]} is answered"


def _from(text: str, at: int) -> str:
    part = text[at : at + SHOWN_CHARACTERS]
    return repr(part) + ("…" if at + SHOWN_CHARACTERS < len(text) else "") if part else "its end"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 4 * SHOWN_CHARACTERS else text[: 4 * SHOWN_CHARACTERS] + "…"


def _choices(events: Iterable[Mapping[str, Any]]) -> tuple[Choice, ...]:
    """Chat and plain completions: whole ones have a message or a text, streamed ones deltas to be joined."""
    found: dict[int, _Joined] = {}
    for event in events:
        for item in event.get("choices") or []:
            joined = found.setdefault(int(item.get("index") or 0), _Joined())
            joined.add(item.get("message") or item.get("delta") or {}, item.get("text"))
            joined.finish = item.get("finish_reason") or joined.finish
    return tuple(found[index].choice for index in sorted(found))


class _Joined:
    """A choice while its pieces come."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.thinking: list[str] = []
        self.calls: dict[int, list[str]] = {}
        self.finish: str | None = None

    def add(self, message: Mapping[str, Any], text: object = None) -> None:
        for piece in (text, message.get("content"), message.get("refusal")):
            self.content.append(text_of(piece))
        self.thinking.append(text_of(message.get("reasoning_content") or message.get("reasoning")))
        for place, call in enumerate(message.get("tool_calls") or []):
            name, arguments = call_of(call)
            slot = self.calls.setdefault(int(call.get("index", place)), ["", ""])
            slot[0] = slot[0] or name
            slot[1] += arguments

    @property
    def choice(self) -> Choice:
        calls = tuple((name, arguments) for _, (name, arguments) in sorted(self.calls.items()))
        return Choice("".join(self.content), "".join(self.thinking), calls, self.finish)


def call_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """A tool call's name and arguments, in OpenAI's form or a flat one; absent parts are empty."""
    function = call.get("function") or call.get("custom") or call
    return text_of(function.get("name")), text_of(function.get("arguments") or function.get("input"))


def text_of(value: object) -> str:
    """A text, that of its parts joined, or another value as JSON; empty for none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return "".join(
            text_of(part.get("text", part)) if isinstance(part, Mapping) else text_of(part) for part in value
        )
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _response(events: Iterable[Mapping[str, Any]]) -> tuple[Choice, ...]:
    """OpenAI's newer protocol: a stream's last event holds the whole answer."""
    whole: Mapping[str, Any] = {}
    for event in events:
        inner = event.get("response")
        whole = inner if isinstance(inner, Mapping) and "output" in inner else whole
        whole = event if "output" in event else whole
    joined = _Joined()
    for number, item in enumerate(whole["output"]):
        kind = item.get("type")
        if kind == "function_call":
            joined.calls[number] = list(call_of(item))
        elif kind == "reasoning":
            joined.thinking.append(text_of(item.get("content") or item.get("summary")))
        else:
            joined.content.append(text_of(item.get("content")))
    reason = (whole.get("incomplete_details") or {}).get("reason")
    joined.finish = reason or whole.get("status")
    return (joined.choice,)


def _blocks(events: Iterable[Mapping[str, Any]]) -> tuple[Choice, ...]:
    """Anthropic's protocol: blocks of text, thinking and tool use, whole or in pieces."""
    joined = _Joined()
    inputs: dict[int, tuple[str, list[str]]] = {}
    seen = False
    for event in events:
        kind = event.get("type")
        seen = seen or kind in ("message", "message_start")
        if kind == "message":
            for number, block in enumerate(event["content"]):
                _block(joined, inputs, number, block)
            joined.finish = event.get("stop_reason")
        elif kind == "content_block_start":
            _block(joined, inputs, int(event["index"]), event["content_block"])
        elif kind == "content_block_delta":
            delta = event["delta"]
            joined.content.append(text_of(delta.get("text")))
            joined.thinking.append(text_of(delta.get("thinking")))
            if "partial_json" in delta:
                inputs[int(event["index"])][1].append(text_of(delta["partial_json"]))
        elif kind == "message_delta":
            joined.finish = event["delta"].get("stop_reason") or joined.finish
    for number, (name, pieces) in inputs.items():
        joined.calls[number] = [name, text_of(json.loads("".join(pieces) or "{}"))]
    return (joined.choice,) if seen else ()


def _block(
    joined: _Joined, inputs: dict[int, tuple[str, list[str]]], number: int, block: Mapping[str, Any]
) -> None:
    if block.get("type") == "tool_use":
        given = block.get("input")
        inputs[number] = (text_of(block.get("name")), [json.dumps(given)] if given else [])
    else:
        joined.content.append(text_of(block.get("text")))
        joined.thinking.append(text_of(block.get("thinking")))


def _events(body: bytes) -> list[Mapping[str, Any]]:
    """The objects of a stream's events, in their order."""
    return [
        _object(line.partition(b":")[2])
        for line in body.replace(b"\r\n", b"\n").split(b"\n")
        if line.startswith(b"data:") and line.partition(b":")[2].strip() != b"[DONE]"
    ]


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _usage(events: Iterable[Mapping[str, Any]]) -> Mapping[str, int] | None:
    """The last counts that are told; what they are made of is left out."""
    found: dict[str, int] = {}
    for event in events:
        for holder in (event, event.get("message"), event.get("response")):
            usage = holder.get("usage") if isinstance(holder, Mapping) else None
            if isinstance(usage, Mapping):
                found |= {str(name): count for name, count in usage.items() if type(count) is int}
    return found or None
