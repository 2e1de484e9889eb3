"""`chat.completion` and its chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from server.generation import Delta
from server.sampling import TokenLogprob
from server.tokenizer import Tokenizer
from server.toolcalls import ToolCall
from server.wire import Choice, Envelope, Frames, dumps, quoted


class ChatWire:
    """Writes the answers of one chat request."""

    def __init__(self, model: str, fingerprint: str, tokenizer: Tokenizer, *, logprobs: bool, usage: bool):
        """Write for one request; `logprobs` as asked, `usage`: the stream ends with the counts."""
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._whole = Envelope("chat.completion", model, fingerprint, "chatcmpl-")
        chunk = Envelope("chat.completion.chunk", model, fingerprint, "chatcmpl-")
        self._frames = Frames(chunk, include_usage=usage)
        self._begun: set[int] = set()

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, object]) -> str:
        """Return the JSON of the response that is not streamed."""
        return dumps(
            {
                **self._whole.fields(),
                "choices": [
                    {
                        "index": index,
                        "message": _message(choice),
                        "logprobs": self._scored(choice.logprobs),
                        "finish_reason": choice.finish,
                    }
                    for index, choice in enumerate(choices)
                ],
                "usage": dict(usage),
            }
        )

    def chunk(self, delta: Delta) -> str:
        """Return the events for a delta; the first of a choice opens with the role."""
        frames, index = self._frames, delta.choice
        out = ""
        if index not in self._begun:
            self._begun.add(index)
            out = frames.plain(index, '"delta":{"role":"assistant","content":""}')
        if delta.reasoning:
            out += frames.plain(index, f'"delta":{{"reasoning_content":{quoted(delta.reasoning)}}}')
        if delta.logprobs:
            content = f'"delta":{{"content":{quoted(delta.text)}}}'
            out += frames.frame(index, content, self._scored(delta.logprobs), None)
        elif delta.text:
            out += frames.plain(index, f'"delta":{{"content":{quoted(delta.text)}}}')
        for call in delta.calls:
            opening = {"index": call.index, **_call({"name": call.name, "arguments": ""}, call)}
            arguments = {"index": call.index, "function": {"arguments": call.arguments}}
            for part in (opening, arguments):
                out += frames.plain(index, f'"delta":{{"tool_calls":[{dumps(part)}]}}')
        if delta.finish:
            out += frames.frame(index, '"delta":{}', None, delta.finish)
        return out

    def usage_chunk(self, usage: Mapping[str, object]) -> str:
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


def _message(choice: Choice) -> dict[str, object]:
    text, reasoning = "".join(choice.text), "".join(choice.reasoning)
    message: dict[str, object] = {"role": "assistant", "content": text, "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if choice.calls:
        message["content"] = text or None
        message["tool_calls"] = [
            _call({"name": call.name, "arguments": call.arguments}, call) for call in choice.calls
        ]
    return message


def _call(function: Mapping[str, str], call: ToolCall) -> dict[str, object]:
    return {"id": call.ident, "type": "function", "function": function}
