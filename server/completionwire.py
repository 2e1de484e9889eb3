"""`text_completion`, streamed or not."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence

from server.generation import Delta, PromptScore
from server.sampling import TokenLogprob
from server.tokenizer import Tokenizer
from server.wire import Choice, Envelope, Frames, dumps, quoted


class CompletionWire:
    """Writes the answers of one request; `echoes` are the prompts' texts, one a choice, when asked."""

    def __init__(
        self,
        model: str,
        fingerprint: str,
        tokenizer: Tokenizer,
        *,
        logprobs: bool,
        usage: bool,
        echoes: Sequence[str] | None,
        scores: bool,
    ):
        """Write for one request; `scores`: each prompt's named ids were scored."""
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._echoes = echoes
        self._scores = scores
        self._envelope = Envelope("text_completion", model, fingerprint, "cmpl-")
        self._frames = Frames(self._envelope, include_usage=usage)
        self._begun: dict[int, _Offsets] = {}

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, object]) -> str:
        """Return the JSON of the response that is not streamed."""
        shown = ",".join(self._choice(index, choice) for index, choice in enumerate(choices))
        return f'{dumps(self._envelope.fields())[:-1]},"choices":[{shown}],"usage":{dumps(usage)}}}'

    def _choice(self, index: int, choice: Choice) -> str:
        fields = dumps(
            {
                "index": index,
                "text": self._echo(index) + "".join(choice.text),
                "logprobs": self._scored(index, [*choice.prompt_logprobs, *choice.logprobs]),
                "finish_reason": choice.finish,
            }
        )
        return f'{fields[:-1]},"prompt_scores":{_scores(choice.prompt_scores)}}}' if self._scores else fields

    def chunk(self, delta: Delta) -> str:
        """Return the event for a delta; the first of a choice opens with the echo."""
        index, text, logprobs = delta.choice, delta.text, delta.logprobs
        if delta.prompted is not None:
            text = self._echo(index) + text
            logprobs = delta.prompted.logprobs + logprobs
        if logprobs or delta.finish:
            scored = self._scored(index, logprobs) if logprobs else None
            return self._frames.frame(index, f'"text":{quoted(text)}', scored, delta.finish)
        return self._frames.plain(index, f'"text":{quoted(text)}') if text else ""

    def usage_chunk(self, usage: Mapping[str, object]) -> str:
        """Return the last event before `[DONE]`."""
        return self._frames.usage(usage)

    def _echo(self, index: int) -> str:
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


def _scores(scores: Sequence[PromptScore]) -> str:
    """Return `prompt_scores`, position by position: one dump of all would hold the engine thread up.

    A float32 is written with the digits of its double, so that reading it gives the same number back.
    """
    tops = ",".join(["null", *(str(score.top) for score in scores)])
    logprobs = ",".join(["[]", *(dumps(score.logprobs.tolist()) for score in scores)])
    return f'{{"top_ids":[{tops}],"logprobs":[{logprobs}]}}'


def _name(data: bytes) -> str:
    """Return a token's text, or OpenAI's escaped `bytes:` form for one that is no text by itself."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
