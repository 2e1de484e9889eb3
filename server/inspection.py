"""How an engine is asked for, and what it would be, told from a model's header before any weights are read.

Contract: :func:`inspect` refuses what opening an engine with the same :class:`EngineOptions` refuses before
it reads weights, in the same words, in the time that a header takes. What is left to opening is that memory
is short, or a file that changed meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from server import abi
from server.build import EngineBuild, ensure_built
from server.build_cuda import ensure_built_cuda, ensure_built_emulated
from server.checkpoint import Checkpoint, read
from server.description import Description
from server.metadata import decoded

# What computes, and how its library is made; the emulated one is for tests.
DEVICES: dict[str, Callable[[], EngineBuild]] = {
    "cpu": ensure_built,
    "cuda": ensure_built_cuda,
    "cuda-emulated": ensure_built_emulated,
}


def built(device: str) -> EngineBuild:
    """Returns a device's library, compiling it when there is none.

    Raises:
        EngineError: it cannot be compiled here; says why.
    """
    return DEVICES[device]()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is to be held and computed; see :class:`~server.engine.Engine` for each of them."""

    threads: int | None = None
    slots: int = 8
    context: int | None = None
    isa: str | None = None
    kv: Literal["f16", "int8", "q4"] = "f16"
    head: Literal["stored", "q8_0"] = "stored"
    device: Literal["cpu", "cuda", "cuda-emulated"] = "cpu"
    kept_slots: int = 0
    kept_positions: int = 0
    memory_bytes: int = 0

    def native(self, model: Path | Checkpoint) -> abi.Options:
        """Return what the library takes, without a checkpoint's description.

        Raises:
            EngineArgumentError: a number is none that it can hold.
        """
        threads = len(os.sched_getaffinity(0)) if self.threads is None else self.threads
        return abi.Options(
            path=os.fsencode(model.folder if isinstance(model, Checkpoint) else model),
            isa=None if self.isa is None else self.isa.encode(),
            kv=self.kv.encode(),
            head=self.head.encode(),
            threads=abi.int32("threads", threads),
            slots=abi.int32("slots", self.slots),
            context=abi.int32("context", 0 if self.context is None else self.context),
            kept_slots=abi.int32("kept slots", self.kept_slots),
            kept_positions=abi.int64("kept positions", self.kept_positions),
            memory_bytes=abi.int64("device memory", self.memory_bytes),
        )


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a header says of the engine that it would be."""

    metadata: Mapping[str, object]
    context: int  # positions a slot would hold
    vocabulary: int


def inspect(model: Path | Checkpoint, options: EngineOptions) -> Inspection:
    """Return what an engine of these options would be.

    Args:
        model: a GGUF file, a directory of safetensors files, or such a directory already read.
        options: how it is asked for.

    Raises:
        EngineError: opening it would be refused; says why.
    """
    if isinstance(model, Path) and model.is_dir():
        model = read(model)
    library = abi.load(built(options.device).library)
    native = options.native(model)
    description = Description(model) if isinstance(model, Checkpoint) else None
    if description is not None:
        description.fill(native)
    found, entries = library.inspect(native)
    return Inspection(MappingProxyType(decoded(entries)), found.context, found.vocabulary)
