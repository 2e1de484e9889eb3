"""The nouns between HTTP and the engine thread: what is asked, what comes back, and one answer's state.

`Generation` is one choice of one request. `Answer` is its life in the engine thread: prompt position,
sampler, text, budget; it turns logits rows into `Delta`s. HTTP sees only `Generation` and `Delta`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from server.sampling import Sampler, Sampling, TokenLogprob, token_logprob
from server.textstream import TextStream
from server.tokenizer import Tokenizer

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Generation:
    """One choice to generate."""

    prompt: tuple[int, ...]  # at least one id
    max_tokens: int  # at least 0; the caller has cut it to the context
    sampling: Sampling
    seed: int
    choice: int  # keys the random stream together with the seed
    stops: tuple[bytes, ...] = ()
    top_logprobs: int | None = None  # None: no log-probabilities
    prompt_logprobs: bool = False
    ignore_end: bool = False  # go on after an end token
    cache_prompt: bool = True  # False: nothing that was kept of other prompts is used

    @property
    def scored(self) -> bool:
        """Whether the logits of every prompt token are wanted, so that none may come from a cache."""
        return self.prompt_logprobs


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step added to one choice."""

    index: int  # the choice's place in its request
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()  # of tokens whose text is let go with `text`
    finish: FinishReason | None = None
    generated: int = 0  # tokens so far, the end token included
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None  # once, with the first delta


@dataclass(slots=True)
class Answer:
    """One choice in the engine thread; only that thread touches it after it was made."""

    generation: Generation
    index: int
    tokenizer: Tokenizer
    slot: int = -1
    position: int = 0  # positions written to the slot
    generated: int = 0
    cached_tokens: int = 0  # prompt tokens that the scheduler had kept and did not compute again
    last: int = -1  # the token to write next, once the prompt is through
    submitted: float = field(default_factory=time.perf_counter)
    seen: float | None = None  # when the last token came
    _text: TextStream = field(init=False)
    _sampler: Sampler = field(init=False)
    _held: list[tuple[int, TokenLogprob]] = field(default_factory=list)
    _fed: int = 0
    _prompt: list[TokenLogprob] = field(default_factory=list)

    def __post_init__(self) -> None:
        generation = self.generation
        self._text = TextStream(generation.stops)
        self._sampler = Sampler(generation.sampling, generation.seed, generation.choice)
        if generation.prompt_logprobs:
            self._prompt.append(TokenLogprob(generation.prompt[0], None))

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt stands in the slot."""
        return self.position >= len(self.generation.prompt)

    def prompt_row(self, position: int, logits: NDArray[np.float32]) -> None:
        """Take the logits after prompt token `position`, which score the prompt token that follows."""
        follower = self.generation.prompt[position + 1]
        self._prompt.append(token_logprob(logits, follower, self.generation.top_logprobs or 0))

    def token_row(self, logits: NDArray[np.float32], argmax: int) -> Delta:
        """Choose the next token from the logits of the last position and return what it adds."""
        generation = self.generation
        prompt = tuple(self._prompt) if generation.prompt_logprobs and not self.generated else None
        if generation.max_tokens == 0:
            return Delta(self.index, "", (), "length", 0, prompt)
        token = self._sampler.choose(logits, argmax)
        self.generated += 1
        self.last = token
        if token in self.tokenizer.ends and not generation.ignore_end:
            text = self._text.finish()
            return Delta(self.index, text, self._released(everything=True), "stop", self.generated, prompt)
        if generation.top_logprobs is not None:
            self._held.append((self._fed, token_logprob(logits, token, generation.top_logprobs)))
        data = self.tokenizer.token_bytes(token)
        self._fed += len(data)
        text = self._text.feed(data)
        finish: FinishReason | None = None
        if self._text.stopped:
            finish = "stop"
        elif self.generated >= generation.max_tokens:
            finish = "length"
            text += self._text.finish()
        everything = finish == "length"
        return Delta(self.index, text, self._released(everything=everything), finish, self.generated, prompt)

    def _released(self, *, everything: bool) -> tuple[TokenLogprob, ...]:
        """Return the held log-probabilities of tokens that begin before the text let go so far."""
        if not self._held:
            return ()
        limit = self._text.released
        count = sum(1 for begin, _ in self._held if everything or begin < limit)
        out = tuple(logprob for _, logprob in self._held[:count])
        del self._held[:count]
        return out
