"""Answers in OpenAI's JSON: whole responses, stream chunks, log-probabilities, usage.

A stream's token path makes its JSON from a prepared head and one `json.dumps` of the text: building and
dumping the whole chunk for every token would cost several times as much.
"""

from __future__ import annotations

import codecs
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from server.generation import Delta, FinishReason
from server.sampling import TokenLogprob
from server.tokenizer import Tokenizer


@dataclass(slots=True)
class Choice:
    """One choice's deltas put together."""

    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: Sequence[TokenLogprob] = ()
    finish: FinishReason | None = None
    generated: int = 0

    def add(self, delta: Delta) -> None:
        """Take in the next delta."""
        self.text.append(delta.text)
        self.logprobs.extend(delta.logprobs)
        self.prompt_logprobs = delta.prompt_logprobs or self.prompt_logprobs
        self.finish = delta.finish
        self.generated = delta.generated


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

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, object]) -> dict[str, object]:
        """Return the response that is not streamed."""

    def chunk(self, delta: Delta) -> bytes:
        """Return the server-sent event(s) for a delta, or nothing when it holds nothing to show."""

    def usage_chunk(self, usage: Mapping[str, object]) -> bytes:
        """Return the stream's last event before `[DONE]`, with the token counts."""


def dumps(value: object) -> str:
    """Return compact JSON; ValueError for NaN, which JSON does not have."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, object]:
    """Return OpenAI's token counts; nothing is cached across requests, so 0 are."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


class _Frames:
    """Writes chunks as server-sent events around a prepared head."""

    def __init__(self, envelope: Envelope, *, include_usage: bool) -> None:
        self._head = "data: " + dumps(envelope.fields())[:-1] + ',"choices":['
        # With include_usage every chunk says so, and only the last one has the counts.
        self._tail = '],"usage":null}\n\n' if include_usage else "]}\n\n"

    def frame(self, index: int, content: str, logprobs: object, finish: str | None) -> str:
        shown = "null" if logprobs is None else dumps(logprobs)
        end = "null" if finish is None else f'"{finish}"'
        choice = f'{{"index":{index},{content},"logprobs":{shown},"finish_reason":{end}}}'
        return self._head + choice + self._tail

    def usage(self, usage: Mapping[str, object]) -> bytes:
        return f'{self._head}],"usage":{dumps(usage)}}}\n\n'.encode()


class ChatWire:
    """`chat.completion` and its chunks."""

    def __init__(self, model: str, fingerprint: str, tokenizer: Tokenizer, *, logprobs: bool, usage: bool):
        """Write for one request; `logprobs` as asked, `usage`: the stream ends with the counts."""
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._whole = Envelope("chat.completion", model, fingerprint, "chatcmpl-")
        chunk = Envelope("chat.completion.chunk", model, fingerprint, "chatcmpl-")
        self._frames = _Frames(chunk, include_usage=usage)
        self._begun: set[int] = set()

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, object]) -> dict[str, object]:
        """Return the response that is not streamed."""
        return {
            **self._whole.fields(),
            "choices": [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": "".join(choice.text), "refusal": None},
                    "logprobs": self._scored(choice.logprobs),
                    "finish_reason": choice.finish,
                }
                for index, choice in enumerate(choices)
            ],
            "usage": dict(usage),
        }

    def chunk(self, delta: Delta) -> bytes:
        """Return the events for a delta; the first of a choice opens with the role."""
        out = ""
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            out = self._frames.frame(delta.index, '"delta":{"role":"assistant","content":""}', None, None)
        if delta.text or delta.logprobs:
            content = f'"delta":{{"content":{json.dumps(delta.text)}}}'
            scored = self._scored(delta.logprobs) if delta.logprobs else None
            out += self._frames.frame(delta.index, content, scored, None)
        if delta.finish:
            out += self._frames.frame(delta.index, '"delta":{}', None, delta.finish)
        return out.encode()

    def usage_chunk(self, usage: Mapping[str, object]) -> bytes:
        """Return the last event before `[DONE]`."""
        return self._frames.usage(usage)

    def _scored(self, logprobs: Sequence[TokenLogprob]) -> dict[str, object] | None:
        if not self._logprobs:
            return None
        return {
            "content": [
                {
                    **self._spelt(item.token, item.logprob),
                    "top_logprobs": [self._spelt(token, logprob) for token, logprob in item.top],
                }
                for item in logprobs
            ],
            "refusal": None,
        }

    def _spelt(self, token: int, logprob: float | None) -> dict[str, object]:
        data = self._tokenizer.spelling(token)
        return {"token": data.decode("utf-8", "replace"), "bytes": list(data), "logprob": logprob}


class CompletionWire:
    """`text_completion`, streamed or not; `echoes` are the prompts' texts, one a choice, when asked."""

    def __init__(
        self,
        model: str,
        fingerprint: str,
        tokenizer: Tokenizer,
        *,
        logprobs: bool,
        usage: bool,
        echoes: Sequence[str] | None,
    ):
        """Write for one request."""
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._echoes = echoes
        self._envelope = Envelope("text_completion", model, fingerprint, "cmpl-")
        self._frames = _Frames(self._envelope, include_usage=usage)
        self._begun: dict[int, _Offsets] = {}

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, object]) -> dict[str, object]:
        """Return the response that is not streamed."""
        return {
            **self._envelope.fields(),
            "choices": [
                {
                    "index": index,
                    "text": self._echo(index) + "".join(choice.text),
                    "logprobs": self._scored(index, [*choice.prompt_logprobs, *choice.logprobs]),
                    "finish_reason": choice.finish,
                }
                for index, choice in enumerate(choices)
            ],
            "usage": dict(usage),
        }

    def chunk(self, delta: Delta) -> bytes:
        """Return the event for a delta; the first of a choice opens with the echo."""
        text, logprobs = delta.text, [*(delta.prompt_logprobs or ()), *delta.logprobs]
        if delta.index not in self._begun:
            text = self._echo(delta.index) + text
        if not (text or logprobs or delta.finish):
            return b""
        scored = self._scored(delta.index, logprobs) if logprobs else None
        return self._frames.frame(delta.index, f'"text":{json.dumps(text)}', scored, delta.finish).encode()

    def usage_chunk(self, usage: Mapping[str, object]) -> bytes:
        """Return the last event before `[DONE]`."""
        return self._frames.usage(usage)

    def _echo(self, index: int) -> str:
        self._begun.setdefault(index, _Offsets())
        return self._echoes[index] if self._echoes is not None else ""

    def _scored(self, index: int, logprobs: Sequence[TokenLogprob]) -> dict[str, object] | None:
        if not self._logprobs:
            return None
        offsets = self._begun.setdefault(index, _Offsets())
        spell = self._tokenizer.spelling
        return {
            "tokens": [_name(spell(item.token)) for item in logprobs],
            "token_logprobs": [item.logprob for item in logprobs],
            "top_logprobs": [
                {_name(spell(token)): logprob for token, logprob in item.top} if item.top else None
                for item in logprobs
            ],
            "text_offset": [offsets.next(spell(item.token)) for item in logprobs],
        }


class _Offsets:
    """Counts the characters before each token of one choice."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters = 0

    def next(self, data: bytes) -> int:
        """Return the offset at which a token begins and move past it."""
        begin = self._characters
        self._characters += len(self._decoder.decode(data))
        return begin


def _name(data: bytes) -> str:
    """Return a token's text, or OpenAI's escaped `bytes:` form for one that is no text by itself."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
