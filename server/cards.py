"""What GPUs are said to do: the published figures of `cards.toml`, and how long a step takes at them.

Contract: nothing here was measured. A step at the published figures takes at least as long as its slowest
unit: memory, the matrix units (which do int8 and halves in turn) or the vector units. The same with each
figure multiplied by an assumed share is what a plan expects.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from server.plan import Cost

TABLE = Path(__file__).parent / "cards.toml"
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the published figures, each from 0 to 1."""

    bandwidth: float = 1.0
    matrix: float = 1.0
    vector: float = 1.0


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as its maker describes it."""

    key: str
    name: str
    source: str  # whose figures these are
    memory_gib: int
    bytes_per_s: float  # of its memory
    int8_operations_per_s: float  # of the matrix units, dense
    half_operations_per_s: float  # of the matrix units, summed in floats, dense
    vector_operations_per_s: float  # a multiply-add is two

    @property
    def memory_bytes(self) -> int:
        """The memory by its name: a driver shows less."""
        return self.memory_gib * GIB

    def seconds(self, cost: Cost, shares: Shares) -> float:
        """Return what a cost takes at these shares of the figures, all units working beside each other."""
        moved = cost.moved_bytes / (self.bytes_per_s * shares.bandwidth)
        matrix = (
            cost.int8_operations / self.int8_operations_per_s
            + cost.half_operations / self.half_operations_per_s
        ) / shares.matrix
        vector = cost.vector_operations / (self.vector_operations_per_s * shares.vector)
        return max(moved, matrix, vector)


def read() -> tuple[dict[str, Card], Shares]:
    """Return every card by its key, and the shares that are assumed of all of them."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    assumed = Shares(**table.pop("assumed"))
    return {key: Card(key=key, **values) for key, values in table.items()}, assumed
