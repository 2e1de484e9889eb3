"""The prefix cache: slots whose answers have ended keep their keys and values for prompts that begin alike.

Contract: `begin` gives a prompt a slot and says how many of its first tokens are there already; the engine
makes their bytes the same as if they had been computed (`Engine.fork`), so a cached prefix changes no
answer. A slot is busy from `begin` to `end`. What idle slots keep is bounded in tokens, the least recently
used going first. Everything here runs in the engine thread, between steps.

A model that keeps a state of its sequence gives away only the last few lengths of a slot
(`Engine.rewindable`). Of its prompts a copy is kept as they are when they have been read, so that the same
prompt, or one that goes on from it, is found after the answer has moved the state on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from server.radix import RadixTree

# A shorter match is computed again: a fork copies up to a block of positions.
SHORTEST_MATCH = 8


class Forker(Protocol):
    """The part of the engine that holds slots."""

    slots: int

    def fork(self, source: int, slot: int, positions: int) -> None:
        """Make `slot` hold the first positions of `source`."""

    def rewindable(self, slot: int) -> int:
        """Return the fewest positions above 0 that `slot` can be taken back to; 0: any number."""


class PrefixCache:
    """The engine's slots, idle and busy, and what each is known to hold."""

    def __init__(self, engine: Forker, kept_tokens: int) -> None:
        """Make the cache of an engine whose slots are all empty.

        Args:
            engine: whose slots these are.
            kept_tokens: positions that idle slots may keep together.
        """
        self._engine = engine
        self._kept_tokens = kept_tokens
        self._tree = RadixTree()
        self._idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(engine.slots))  # least recent first

    def match(self, prompt: Sequence[int]) -> int:
        """Return how many first tokens of a prompt `begin` would find."""
        _, length = self._tree.longest(prompt[:-1], self._usable)
        return length if length >= SHORTEST_MATCH else 0

    def _usable(self, slot: int, length: int) -> bool:
        return length >= self._engine.rewindable(slot)

    def begin(self, prompt: Sequence[int], *, use: bool) -> tuple[int, int]:
        """Take a slot for a prompt and return it with how many of the prompt's first tokens it holds.

        At least the prompt's last token is left to compute. With `use` false nothing that is kept is used.
        There must be an idle slot.
        """
        source, length = self._tree.longest(prompt[:-1], self._usable) if use else (-1, 0)
        if length < SHORTEST_MATCH:
            source, length = -1, 0
        # Where the prompt goes on from all that a slot keeps, nothing is lost by going on in it.
        if source in self._idle and length == self._tree.length(source):
            slot = source
        else:
            slot = next((each for each in self._idle if each != source), source)
        self._tree.remove(slot)
        self._engine.fork(slot if source < 0 else source, slot, length)
        del self._idle[slot]  # last: a slot that an engine fails to fork is idle still, holding nothing known
        return slot, length

    def share(self, slot: int, tokens: Sequence[int]) -> None:
        """A busy slot holds exactly these tokens, and others may begin with them."""
        self._tree.insert(slot, tokens)
        if self._engine.rewindable(slot) and len(self._idle) > 1 and len(tokens) <= self._kept_tokens:
            copy = next(iter(self._idle))
            self._forget(copy)
            self._bound(len(tokens))
            self._engine.fork(slot, copy, len(tokens))
            self._tree.insert(copy, tokens)
            self._idle.move_to_end(copy)

    def end(self, slot: int, tokens: Sequence[int], *, more: bool = False) -> None:
        """A slot becomes idle, holding these tokens, and perhaps more behind them that nobody is to find.

        Without tokens what it holds is not known, or not to be kept.
        """
        self._tree.remove(slot)
        if tokens:
            if more:
                self._engine.fork(slot, slot, len(tokens))
            self._tree.insert(slot, tokens)
            self._idle[slot] = None
        else:
            self._engine.fork(slot, slot, 0)
            self._idle[slot] = None
            self._idle.move_to_end(slot, last=False)
        self._bound()

    def _bound(self, more: int = 0) -> None:
        """Forget the least recently used until what idle slots keep, and so many `more`, is in bounds."""
        kept = more + sum(self._tree.length(each) for each in self._idle)
        for each in list(self._idle):
            if kept <= self._kept_tokens:
                break
            kept -= self._tree.length(each)
            self._forget(each)

    def _forget(self, slot: int) -> None:
        self._tree.remove(slot)
        self._engine.fork(slot, slot, 0)
