"""Messages as evaluators' records hold them, in the one form that a reader is shown.

They all write OpenAI's form or one close to it; where they differ is how thinking is told apart (a field of
its own, or a part of the content), and what a tool call looks like, which is kept as it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from assay.view.view import Message

THOUGHT = ("reasoning_content", "reasoning")


def message(value: Mapping[str, Any]) -> Message:
    """One message; what its content holds besides text is named in brackets, an image as "[image]"."""
    content = value.get("content")
    parts: list[Any] = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    thoughts = [str(value[name]) for name in THOUGHT if isinstance(value.get(name), str)]
    texts = []
    for part in parts:
        kind = str(part.get("type")) if isinstance(part, Mapping) else "text"
        if kind in THOUGHT:
            thoughts.append(str(part.get("reasoning") or part.get("text") or ""))
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, str):
            texts.append(part)
        else:
            texts.append(f"[{kind.partition('_')[0]}]")
    thinking = "\n".join(thought for thought in thoughts[:1] or thoughts if thought.strip())
    return Message(
        role=str(value.get("role") or "unknown"),
        text="".join(texts),
        thinking=thinking or None,
        calls=tuple(as_text(call) for call in value.get("tool_calls") or ()),
    )


def messages(values: Any) -> tuple[Message, ...]:
    """Messages of a list; a text alone is the user's."""
    if isinstance(values, str):
        return (Message("user", values),)
    found = values if isinstance(values, Iterable) and not isinstance(values, Mapping) else ()
    return tuple(message(each) for each in found if isinstance(each, Mapping))


def as_text(value: Any) -> str:
    """A value for a reader: a text is itself, the rest JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def optional_text(value: Any) -> str | None:
    """The same; None for what is not there or holds nothing."""
    return None if value in (None, "", [], {}) else as_text(value)


def failure(value: Any) -> str:
    """A whole error: its kind and message, and where it came from, if the record tells."""
    if not isinstance(value, Mapping):
        return as_text(value)
    kind = value.get("type") or value.get("error_type") or value.get("error") or "error"
    said = [f"{as_text(kind)}: {as_text(value.get('message') or '')}"]
    said += [
        as_text(value[name])
        for name in ("traceback", "error_chain_str", "error_chain_repr")
        if value.get(name)
    ]
    return "\n".join(said)


def number(value: Any) -> float | None:
    """A finite number, or a truth as 0 or 1; None for anything else."""
    return float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else None
