"""The nouns between HTTP and the engine thread: what is asked, what comes back, and one answer's state.

`Generation` is one choice of one request. `Answer` is its life in the engine thread: prompt position,
sampler, grammar, text, budget; it turns logits rows into `Delta`s. HTTP sees only `Generation` and `Delta`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from server.grammar import Constraint, Grammar
from server.reply import Layout, Reply
from server.sampling import Ids, Sampler, Sampling, TokenLogprob, logprobs_of, token_logprob
from server.textstream import TextStream
from server.tokenizer import Tokenizer
from server.toolcalls import ToolCall

FinishReason = Literal["stop", "length", "tool_calls"]

PLAIN = Layout()
NO_TOKENS: frozenset[int] = frozenset()


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
    prompt_ids: tuple[Ids, ...] | None = None  # for each prompt position the ids to score there
    ignore_end: bool = False  # go on after an end token
    cache_prompt: bool = True  # False: nothing that was kept of other prompts is used
    grammar: Grammar | None = None  # what the content must be
    layout: Layout = PLAIN

    @property
    def scored(self) -> bool:
        """Whether the logits of every prompt token are wanted, so that none may come from a cache."""
        return self.prompt_logprobs or self.prompt_ids is not None


class PromptScore(NamedTuple):
    """One prompt position, scored by the tokens before it."""

    top: int  # the likeliest token
    logprobs: NDArray[np.float32]  # of the ids that were asked for, in their order


class Prompted(NamedTuple):
    """What the reading of a prompt gave; comes with a choice's first delta."""

    cached_tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    scores: tuple[PromptScore, ...] = ()  # from the second position on


class Delta(NamedTuple):
    """What one step added to one choice."""

    choice: int  # its place in its request
    text: str
    finish: FinishReason | None = None
    generated: int = 0  # tokens so far, the end token included
    logprobs: tuple[TokenLogprob, ...] = ()  # of tokens whose text is let go with this delta
    reasoning: str = ""
    reasoning_tokens: int = 0  # so far
    calls: tuple[ToolCall, ...] = ()
    prompted: Prompted | None = None  # with the first delta


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
    _reply: Reply | None = None  # None: the answer is content only
    _text: TextStream | Reply = field(init=False)
    _sampler: Sampler = field(init=False)
    _ends: frozenset[int] = field(init=False)
    _constraint: Constraint | None = None
    _held: list[tuple[int, TokenLogprob]] = field(default_factory=list)
    _fed: int = 0
    _reasoning_tokens: int = 0
    _prompt: list[TokenLogprob] = field(default_factory=list)
    _scores: list[PromptScore] = field(default_factory=list)

    def __post_init__(self) -> None:
        generation = self.generation
        if generation.layout.plain:
            self._text = TextStream(generation.stops)
        else:
            self._text = self._reply = Reply(generation.layout, generation.stops)
        self._sampler = Sampler(generation.sampling, generation.seed, generation.choice)
        self._ends = NO_TOKENS if generation.ignore_end else self.tokenizer.ends
        if generation.grammar is not None:
            self._constraint = generation.grammar.begin()
        if generation.prompt_logprobs:
            self._prompt.append(TokenLogprob(generation.prompt[0], None))

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt stands in the slot."""
        return self.position >= len(self.generation.prompt)

    def prompt_row(self, position: int, logits: NDArray[np.float32], argmax: int) -> None:
        """Take the logits after prompt token `position`, which score the prompt token that follows."""
        generation = self.generation
        if generation.prompt_logprobs:
            follower = generation.prompt[position + 1]
            self._prompt.append(token_logprob(logits, follower, generation.top_logprobs or 0))
        if generation.prompt_ids is not None:
            ids = generation.prompt_ids[position + 1]
            self._scores.append(PromptScore(argmax, logprobs_of(logits, ids)))

    def token_row(self, logits: NDArray[np.float32], argmax: int) -> Delta:
        """Choose the next token from the logits of the last position and return what it adds.

        Raises:
            ApiError: the grammar cannot be followed any further.
        """
        generation = self.generation
        prompted = None if self.generated else self._prompted()
        if generation.max_tokens == 0:
            return Delta(self.index, "", "length", prompted=prompted)
        token = self._choose(logits, argmax) if self._constraint else self._sampler.choose(logits, argmax)
        self.generated += 1
        self.last = token
        finish: FinishReason | None = None
        if token in self._ends:
            finish, text = "stop", self._text.finish()
        else:
            if generation.top_logprobs is not None:
                self._held.append((self._fed, token_logprob(logits, token, generation.top_logprobs)))
            text = self._feed(token)
            if self._text.stopped:
                finish = "stop"
            elif self._constraint is not None and self._constraint.complete:
                finish = "stop"
                text += self._text.finish()
            elif self.generated >= generation.max_tokens:
                finish = "length"
                text += self._text.finish()
        # A stop string takes the tokens that spell it out of the list; any other end leaves them in.
        logprobs = self._released(everything=finish is not None and not self._text.stopped)
        if self._reply is None:
            return Delta(self.index, text, finish, self.generated, logprobs, prompted=prompted)
        if finish == "stop" and self._reply.called:
            finish = "tool_calls"
        return Delta(
            self.index,
            text,
            finish,
            self.generated,
            logprobs,
            self._reply.take_reasoning(),
            self._reasoning_tokens,
            self._reply.take_calls(),
            prompted,
        )

    def _prompted(self) -> Prompted:
        return Prompted(self.cached_tokens, tuple(self._prompt), tuple(self._scores))

    def _feed(self, token: int) -> str:
        data = self.tokenizer.token_bytes(token)
        reply = self._reply
        if reply is None:
            self._fed += len(data)
            return self._text.feed(data)
        data = data or self.generation.layout.spelt.get(token, b"")
        self._fed += len(data)
        before = reply.thinking
        text = reply.feed(data)
        if before or reply.thinking:
            self._reasoning_tokens += 1
        return text

    def _choose(self, logits: NDArray[np.float32], argmax: int) -> int:
        """Choose among what the grammar allows; thinking is free, and so is its beginning."""
        constraint, reply = self._constraint, self._reply
        if constraint is None or (reply is not None and reply.thinking):
            return self._sampler.choose(logits, argmax)
        begin = self.generation.layout.thinking_token if reply is not None and reply.undecided else None
        greedy = self.generation.sampling.is_argmax
        if greedy and (argmax == begin or constraint.take(argmax)):
            return argmax
        allowed = constraint.allowed()
        if begin is not None:
            allowed = np.union1d(allowed, [begin])
        token = self._sampler.choose(logits, argmax, allowed)
        if token != begin:
            constraint.take(token)
        return token

    def _released(self, *, everything: bool) -> tuple[TokenLogprob, ...]:
        """Return the held log-probabilities of tokens that begin before the text let go so far."""
        if not self._held:
            return ()
        limit = self._text.released
        count = sum(1 for begin, _ in self._held if everything or begin < limit)
        out = tuple(logprob for _, logprob in self._held[:count])
        del self._held[:count]
        return out
