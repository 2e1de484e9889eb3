"""Picking samples at random, so that the same seed picks the same ones from the same record.

Each sample has a rank, SHA-256 over the seed and its name, and the lowest ranks are picked: one pass, nothing
held but what is picked, and no order of a file decides.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256


@dataclass
class Lottery:
    """Picks the `most` of lowest rank.

    Attributes:
        seed: Decides the ranks.
        most: How many are picked.
        finished: How many there were.
    """

    seed: int
    most: int
    finished: int = 0
    _picked: list[tuple[int, tuple[str | int, ...]]] = field(default_factory=list)

    def add(self, *name: str | int) -> None:
        """One more sample, by its name."""
        self.finished += 1
        rank = int.from_bytes(sha256(json.dumps([self.seed, *name]).encode("ascii")).digest())
        heapq.heappush(self._picked, (-rank, name))
        if len(self._picked) > self.most:
            heapq.heappop(self._picked)

    @property
    def picked(self) -> frozenset[tuple[str | int, ...]]:
        """The names of those that were picked."""
        return frozenset(name for _, name in self._picked)


def pick(names: Iterable[tuple[str | int, ...]], seed: int, most: int) -> Lottery:
    """A lottery among the names."""
    lottery = Lottery(seed, most)
    for name in names:
        lottery.add(*name)
    return lottery
