"""Speculation: a cheap guesser proposes tokens, and the model judges several of them in one step.

Contract: guesses change no answer. The engine gives a row the same bytes however many stand beside it, and
each token is chosen from its own row as without guesses; a guess that is another token than the chosen one
ends what this step adds, and the next step writes over it. So a bad guess costs time and nothing else.

Two guessers: `NgramGuesser` looks for what followed the last tokens earlier in the same text (answers that
quote their prompt, code, lists), and `ModelGuesser` asks a small model of the same vocabulary. All of it
runs in the engine thread, between steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from server.engine import Chunk, StepResult
from server.radix import common_tokens

LONGEST_NGRAM, SHORTEST_NGRAM = 4, 2
MOST_GUESSES = 16  # a step; what a model with state can be taken back by (engine/rewind.h)
READ_AT_ONCE = 512  # tokens of a long prompt that a small model reads between two steps of the large one


@dataclass(eq=False, slots=True)
class Text:
    """A text under way: the prompt and what was answered so far. The list grows, and is never another one."""

    slot: int  # of the model, its own as long as the text is under way
    tokens: list[int]
    most: int = 0  # guesses that are of use now


class Guesser(Protocol):
    """What proposes how texts go on."""

    def guess(self, texts: Sequence[Text]) -> list[list[int]]:
        """Return for each text at most its `most` tokens, in order; fewer or none where it has no idea."""


@dataclass(eq=False, slots=True)
class _Grams:
    """What followed every run of a few tokens of a text, the latest time."""

    tokens: list[int]
    known: int = 0  # tokens that were looked at as followers
    after: dict[tuple[int, ...], int] = field(default_factory=dict)  # run: the place behind it

    def extend(self) -> None:
        """Take in the tokens that came since."""
        tokens = self.tokens
        for place in range(max(self.known, SHORTEST_NGRAM), len(tokens)):
            for size in range(SHORTEST_NGRAM, min(LONGEST_NGRAM, place) + 1):
                self.after[tuple(tokens[place - size : place])] = place
        self.known = len(tokens)

    def guess(self, most: int) -> list[int]:
        """Return what followed the longest run of last tokens that was there before."""
        tokens = self.tokens
        for size in range(min(LONGEST_NGRAM, len(tokens)), SHORTEST_NGRAM - 1, -1):
            place = self.after.get(tuple(tokens[-size:]))
            if place is not None:
                return tokens[place : place + most]
        return []


class NgramGuesser:
    """Guesses that a text repeats itself."""

    def __init__(self) -> None:
        """Know no text yet."""
        self._grams: dict[int, _Grams] = {}

    def guess(self, texts: Sequence[Text]) -> list[list[int]]:
        """Return for each text what followed its last tokens before."""
        guesses = []
        for text in texts:
            grams = self._grams.get(text.slot)
            if grams is None or grams.tokens is not text.tokens:
                grams = self._grams[text.slot] = _Grams(text.tokens)
            grams.extend()
            guesses.append(grams.guess(text.most))
        return guesses


class SmallModel(Protocol):
    """The part of an engine that a guesser drives."""

    slots: int
    context: int

    def rewindable(self, slot: int) -> int:
        """Return the least position above 0 that a slot can be taken back to."""

    def step(self, chunks: Sequence[Chunk]) -> StepResult:
        """Run one batch."""


class ModelGuesser:
    """Guesses what a small model would say, greedily."""

    def __init__(self, engine: SmallModel) -> None:
        """Drive an engine of the same vocabulary, with a slot for each text under way at once."""
        self._engine = engine
        self._slots: OrderedDict[int, int] = OrderedDict()  # of a text: its slot here, least recent first
        self._free = list(range(engine.slots))
        self._held: list[list[int]] = [[] for _ in range(engine.slots)]
        # Of each slot the text it was last asked for, and how many of its first tokens it then held.
        self._agreed: list[tuple[list[int], int]] = [([], 0)] * engine.slots

    def guess(self, texts: Sequence[Text]) -> list[list[int]]:
        """Return for each text the small model's greedy continuation."""
        guesses: list[list[int]] = [[] for _ in texts]
        ready: dict[int, int] = {}  # of a slot here: the text's place
        chunks = []
        for place, text in enumerate(texts):
            # The last token's row is the first guess; each further guess is one more position.
            if text.most and len(text.tokens) + text.most <= self._engine.context:
                slot = self._slot(text.slot, {each.slot for each in texts})
                chunk = self._missing(slot, text.tokens)
                chunks.append(chunk)
                if chunk.position + len(chunk.tokens) == len(text.tokens):
                    ready[slot] = place
        while chunks:
            result = self._engine.step(chunks)
            for chunk in chunks:
                self._held[chunk.slot][chunk.position :] = chunk.tokens
            chunks = []
            for (slot, position), token in zip(result.rows, result.greedy.tolist(), strict=True):
                if slot in ready:
                    guess, most = guesses[ready[slot]], texts[ready[slot]].most
                    guess.append(token)
                    if len(guess) < most:
                        chunks.append(Chunk(slot, position + 1, (token,), "last"))
        return guesses

    def _slot(self, text: int, wanted: set[int]) -> int:
        if text not in self._slots:
            if not self._free:
                gone = next(each for each in self._slots if each not in wanted)
                self._free.append(self._slots.pop(gone))
            self._slots[text] = self._free.pop()
        self._slots.move_to_end(text)
        return self._slots[text]

    def _missing(self, slot: int, tokens: list[int]) -> Chunk:
        """Return what has to be written for a slot to hold a text, its last token at least."""
        held = self._held[slot]
        begin = min(self._common(slot, tokens), len(tokens) - 1)
        if begin < len(held) and begin < self._engine.rewindable(slot):
            begin = 0
        end = min(begin + READ_AT_ONCE, len(tokens))
        self._agreed[slot] = tokens, end
        return Chunk(slot, begin, tokens[begin:end], "last" if end == len(tokens) else "none")

    def _common(self, slot: int, tokens: list[int]) -> int:
        """Return how many first tokens of a text a slot holds; of one that grew only the new are read."""
        held = self._held[slot]
        text, count = self._agreed[slot]
        if text is not tokens:
            return common_tokens(held, tokens)
        while count < min(len(held), len(tokens)) and held[count] == tokens[count]:
            count += 1
        return count
