"""What GPUs are said to do: the published figures of `cards.toml`, and how long a step takes at them.

Contract: nothing here was measured. The parts of a step follow one another, and each takes at least as long
as its slowest unit: memory, the matrix units (which do int8 and halves in turn) or the vector units. At the
published figures that is a bound; the same with each figure multiplied by an assumed share is what a plan
expects. Launches, and chains that wait for each other, are not counted.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from server.plan import GIB, Cost, Part

TABLE = Path(__file__).parent / "cards.toml"


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
        """Return what a cost takes at these shares of the figures, one part after the other."""
        return sum(self._part_seconds(part, shares) for part in cost.parts)

    def _part_seconds(self, part: Part, shares: Shares) -> float:
        moved = part.bytes / (self.bytes_per_s * shares.bandwidth)
        matrix = (
            part.int8_operations / self.int8_operations_per_s
            + part.half_operations / self.half_operations_per_s
        ) / shares.matrix
        vector = part.vector_operations / (self.vector_operations_per_s * shares.vector)
        return max(moved, matrix, vector)


def read() -> tuple[dict[str, Card], Shares]:
    """Return every card by its key, and the shares that are assumed of all of them."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    assumed = Shares(**table.pop("assumed"))
    return {key: Card(key=key, **values) for key, values in table.items()}, assumed
