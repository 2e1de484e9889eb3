"""What a CUDA device needs for a model and what a step costs it, counted from the file's header alone.

Contract: the figures come from the engine's library (`engine/plan.h`, `engine/step_cost.h`), where the CUDA
engine takes its own sizes from the same functions; the CPU's library does, so neither a GPU nor nvcc is
needed. Nothing of the weights is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from server import abi
from server.build import ensure_built
from server.checkpoint import Checkpoint, read
from server.description import Description


@dataclass(frozen=True, slots=True)
class Holding:
    """How a model is to be held."""

    slots: int = 1  # answers at once
    context: int | None = None  # positions of each; None: the engine's choice
    kv: str = "f16"
    kept_slots: int = 0  # beside them, for ended answers
    kept_tokens: int = 0  # positions that those hold together; without any, nothing
    head: str = "stored"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of device memory, and what fits."""

    slots: int  # kept ones included
    context: int
    model_context: int  # what the model was trained for
    largest_context: int  # with these slots; 0: none fits
    largest_slots: int  # beside the kept ones, with this context; 0: none fits
    prefill_rows: int  # computed together at most
    weight_bytes: int
    kv_bytes: int
    state_bytes: int  # recurrent state of every slot
    workspace_bytes: int
    loading_bytes: int  # gone before keys, values and workspace are there
    graph_bytes: int  # allowance: launches that the driver keeps, and the rounding of allocations
    driver_bytes: int  # allowance: what a card keeps back, and a process's context on it
    total_bytes: int  # the most at once
    kv_bytes_per_position: int
    state_bytes_per_slot: int


@dataclass(frozen=True, slots=True)
class Step:
    """The shape of a step."""

    sequences: int
    rows: int  # tokens of each
    position: int  # how many stand before them
    logits: int  # rows of logits wanted


@dataclass(frozen=True, slots=True)
class Part:
    """What a part of a step, or of several, reads, writes and computes."""

    bytes: int = 0
    int8_operations: int = 0  # on matrix units
    half_operations: int = 0  # on matrix units, summed in floats
    vector_operations: int = 0  # lanes of instructions, two each

    def __add__(self, other: Part) -> Part:
        return Part(*(getattr(self, name) + getattr(other, name) for name in COUNTED))


@dataclass(frozen=True, slots=True)
class Cost:
    """What one step, or several, cost; the parts follow one another."""

    products: Part = Part()  # of weights, each read once a step
    attention: Part = Part()  # with keys and values
    delta: Part = Part()  # gated delta layers, with their state
    between: Part = Part()  # what goes from one operation to the next

    @property
    def parts(self) -> tuple[Part, ...]:
        """All of them."""
        return self.products, self.attention, self.delta, self.between

    @property
    def total(self) -> Part:
        """Their sum."""
        return self.products + self.attention + self.delta + self.between

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(mine + theirs for mine, theirs in zip(self.parts, other.parts, strict=True)))


GIB = 1 << 30

COUNTED = ("bytes", "int8_operations", "half_operations", "vector_operations")
PARTS = ("products", "attention", "delta", "between")
MEMORY = tuple(Memory.__dataclass_fields__)


def plan(
    model: Path | Checkpoint, holding: Holding, memory_bytes: int, steps: Sequence[Step]
) -> tuple[Memory, list[Cost]]:
    """Return what holding a model takes, what fits into so many bytes, and what each step costs.

    Raises:
        EngineError: the model is not one that the engine can serve, or the holding breaks a rule; says why.
    """
    if isinstance(model, Path) and model.is_dir():
        model = read(model)
    options = abi.Options(
        path=os.fsencode(model.folder if isinstance(model, Checkpoint) else model),
        kv=holding.kv.encode(),
        head=holding.head.encode(),
        threads=1,
        slots=abi.int32("slots", holding.slots + holding.kept_slots),
        context=abi.int32("context", holding.context or 0),
        kept_slots=abi.int32("kept slots", holding.kept_slots),
        kept_positions=abi.int64("kept positions", holding.kept_tokens if holding.kept_slots else 0),
        memory_bytes=abi.int64("device memory", memory_bytes),
    )
    description = Description(model) if isinstance(model, Checkpoint) else None
    if description is not None:
        description.fill(options)
    memory = abi.Memory()
    native = (abi.StepCost * len(steps))()
    for step, target in zip(steps, native, strict=True):
        target.sequences, target.rows = step.sequences, step.rows
        target.position, target.logits = step.position, step.logits
    _library().plan(options, memory, native)
    found = Memory(*(getattr(memory, name) for name in MEMORY))
    return found, [Cost(*(_part(getattr(each, name)) for name in PARTS)) for each in native]


@cache
def _library() -> abi.Library:
    # What fits is searched for by planning, and the name of a library is a digest over all sources.
    return abi.load(ensure_built().library)


def gib(size: int) -> str:
    """Return a size as it is printed."""
    return f"{size / GIB:,.2f} GiB"


def _part(work: abi.Work) -> Part:
    return Part(*(getattr(work, name) for name in COUNTED))


def with_kept(model: Path | Checkpoint, holding: Holding, most: int, memory_bytes: int) -> Holding:
    """Return a holding with as many kept slots, up to `most`, as fit into so many bytes.

    Raises:
        EngineError: as :func:`plan`.
    """
    if isinstance(model, Path) and model.is_dir():
        model = read(model)

    def fits(kept: int) -> bool:
        memory, _ = plan(model, replace(holding, kept_slots=kept), memory_bytes, [])
        return memory.total_bytes <= memory_bytes

    return replace(holding, kept_slots=largest(most, fits))


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits, where all below one that fits do; 0: none does."""
    good, bad = 0, most + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
