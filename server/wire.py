"""Answers in OpenAI's JSON: what the endpoints' forms share.

A stream's token path makes its JSON from prepared heads and one encoding of the text: building and dumping
the whole chunk for every token would cost several times as much.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Protocol

from server.generation import Delta, FinishReason, PromptScore
from server.sampling import TokenLogprob
from server.toolcalls import ToolCall

# A string as JSON; the whole of `json.dumps` takes three times as long.
quoted = encode_basestring_ascii


@dataclass(slots=True)
class Choice:
    """One choice's deltas put together."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: Sequence[TokenLogprob] = ()
    prompt_scores: Sequence[PromptScore] = ()
    finish: FinishReason | None = None

    def add(self, delta: Delta) -> None:
        """Take in the next delta."""
        self.text.append(delta.text)
        self.reasoning.append(delta.reasoning)
        self.calls.extend(delta.calls)
        self.logprobs.extend(delta.logprobs)
        if delta.prompted is not None:
            self.prompt_logprobs = delta.prompted.logprobs
            self.prompt_scores = delta.prompted.scores
        self.finish = delta.finish


@dataclass(slots=True)
class Tally:
    """A request's tokens, choice by choice; choices of one prompt share its tokens and count them once."""

    prompt_tokens: int
    choices: int  # of each prompt
    cached: dict[int, int] = field(default_factory=dict)
    generated: dict[int, int] = field(default_factory=dict)
    reasoning: dict[int, int] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        """Take in the next delta."""
        self.generated[delta.choice] = delta.generated
        if delta.reasoning_tokens:
            self.reasoning[delta.choice] = delta.reasoning_tokens
        if delta.prompted is not None and delta.choice % self.choices == 0:
            self.cached[delta.choice] = delta.prompted.cached_tokens

    def usage(self) -> dict[str, object]:
        """Return OpenAI's `usage`."""
        completion = sum(self.generated.values())
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self.cached.values())},
            "completion_tokens_details": {"reasoning_tokens": sum(self.reasoning.values())},
        }


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that every response and chunk of one request carries."""

    kind: str  # OpenAI's `object`
    model: str
    fingerprint: str
    prefix: str  # of the id
    ident: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def fields(self) -> dict[str, object]:
        """Return them as JSON values."""
        return {
            "id": self.prefix + self.ident,
            "object": self.kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


class Wire(Protocol):
    """How one endpoint writes its answers."""

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, object]) -> str:
        """Return the JSON of the response that is not streamed."""

    def chunk(self, delta: Delta) -> str:
        """Return the server-sent event(s) for a delta, or nothing when it holds nothing to show."""

    def usage_chunk(self, usage: Mapping[str, object]) -> str:
        """Return the stream's last event before `[DONE]`, with the token counts."""


def dumps(value: object) -> str:
    """Return compact JSON; ValueError for NaN, which JSON does not have."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


class Frames:
    """Writes chunks as server-sent events around prepared ends."""

    def __init__(self, envelope: Envelope, *, include_usage: bool) -> None:
        """Prepare the ends for one request."""
        self._head = "data: " + dumps(envelope.fields())[:-1] + ',"choices":['
        # With include_usage every chunk says so, and only the last one has the counts.
        self._tail = '],"usage":null}\n\n' if include_usage else "]}\n\n"
        self._unscored = ',"logprobs":null,"finish_reason":null}' + self._tail

    def plain(self, index: int, content: str) -> str:
        """Return an event with nothing but content: the path of nearly every token."""
        return f'{self._head}{{"index":{index},{content}{self._unscored}'

    def frame(self, index: int, content: str, logprobs: object, finish: str | None) -> str:
        """Return an event; `content` is the choice's JSON fields as text."""
        shown = "null" if logprobs is None else dumps(logprobs)
        end = "null" if finish is None else f'"{finish}"'
        choice = f'{{"index":{index},{content},"logprobs":{shown},"finish_reason":{end}}}'
        return self._head + choice + self._tail

    def usage(self, usage: Mapping[str, object]) -> str:
        """Return the event with the counts and no choices."""
        return f'{self._head}],"usage":{dumps(usage)}}}\n\n'
