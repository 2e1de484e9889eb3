"""The engine as Python sees it: a model, slots, and one batch at a time.

Contract: a token's logits are the same bytes whatever else is in its step,
however its prompt was cut into chunks, and at any number of threads; they
depend on the model file, the build and the instruction set (``Engine.isa``).
A step releases the interpreter's lock while it computes. An idle engine uses no
CPU. The computing is done by the C++ library in ``engine/``, reached through
the C ABI of ``engine/assay_engine.h`` with ctypes; nothing of it leaks out of
this module.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from server import abi
from server.build import EngineArgumentError, EngineBuild, EngineError, EngineMemoryError
from server.checkpoint import Checkpoint, read
from server.description import Description
from server.inspection import EngineOptions, built
from server.metadata import decoded

__all__ = [
    "Chunk",
    "Engine",
    "EngineArgumentError",
    "EngineBuild",
    "EngineError",
    "EngineMemoryError",
    "StepResult",
    "built",
]

_LOGITS = {"none": 0, "last": 1, "all": 2}


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of one slot, written from a position on."""

    slot: int  # 0 to slots - 1
    position: (
        int  # of the first token; at most the slot's length; everything from it on is forgotten (rewindable)
    )
    tokens: Sequence[int]  # at least one
    logits: Literal["none", "last", "all"]  # of which tokens the next-token logits are wanted


@dataclass(frozen=True)
class StepResult:
    """What a step computed, one row for each token whose logits were asked for, in chunk order."""

    rows: tuple[tuple[int, int], ...]  # (slot, position) of each row
    logits: npt.NDArray[np.float32]  # [rows, vocabulary]; valid until the next step
    greedy: npt.NDArray[np.int32]  # [rows]: the lowest id of the largest logit; valid until the next step


class Engine:
    """A loaded model and its slots."""

    def __init__(
        self,
        model: Path | Checkpoint,
        *,
        threads: int | None = None,
        slots: int = 8,
        context: int | None = None,
        isa: str | None = None,
        kv: Literal["f16", "int8", "q4"] = "f16",
        head: Literal["stored", "q8_0"] = "stored",
        device: Literal["cpu", "cuda", "cuda-emulated"] = "cpu",
        kept_slots: int = 0,
        kept_positions: int = 0,
        memory_bytes: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Loads a model, compiling the library first when needed.

        Args:
            model: a GGUF file, a directory of safetensors files, or such a directory already read.
            threads: computing threads; the number of usable cores by default.
            slots: sequences held at once.
            context: positions a slot can hold; the smaller of the model's and 8192 by default.
            isa: "avx512", "avx2" or "plain" of a CPU; the best the device has by default.
            kv: how keys and values are kept; int8 takes half the memory and q4 a third (5 bits a value),
                at some cost in fidelity.
            head: how the output head is held; q8_0 makes 8.5 bits a weight of one that is stored as floats,
                also at some cost.
            device: what computes; "cuda" is the first GPU that the driver shows, and needs nvcc once.
            kept_slots: of the slots, those that together hold no more than `kept_positions`.
            kept_positions: a device has memory for no more; the CPU takes memory as it is written to.
            memory_bytes: of a device, that may be taken in all; 0: what is free.
            progress: called with the bytes of weights that a device has and those of all of them.

        Raises:
            EngineError: the model is not one this engine can serve, or memory is short; says why.
        """
        if isinstance(model, Path) and model.is_dir():
            model = read(model)
        self._handle = abi.Handle()
        self._lock = threading.Lock()
        self.device = device
        self.build: EngineBuild = built(device)
        self._library = abi.load(self.build.library)
        wanted = EngineOptions(
            threads, slots, context, isa, kv, head, device, kept_slots, kept_positions, memory_bytes
        )
        options = wanted.native(model)
        if progress is not None:
            options.progress = abi.Progress(_reporting(progress))
        description = Description(model) if isinstance(model, Checkpoint) else None
        if description is not None:
            description.fill(options)
        self._library.open(options, self._handle)
        try:
            info = self._library.describe(self._handle)
            self.isa: str = info.isa.decode()
            self.kv: str = info.kv.decode()
            self.head: str = info.head.decode()
            self.threads: int = info.threads
            self.slots: int = info.slots
            self.context: int = info.context
            self.vocabulary: int = info.vocabulary
            self.prefill_chunk: int = info.prefill_chunk
            self._state_chunk: int = info.state_chunk
            self._rewind: int = info.rewind
            self.weight_bytes: int = info.weight_bytes
            self.kv_bytes_per_position: int = info.kv_bytes_per_position
            self.metadata: Mapping[str, object] = MappingProxyType(self._read_metadata())
        except BaseException:
            self.close()
            raise
        self._logits = np.empty((0, self.vocabulary), np.float32)
        self._greedy = np.empty(0, np.int32)

    def step(self, chunks: Sequence[Chunk]) -> StepResult:
        """Computes one batch: writes every token's position and returns the logits asked for.

        Raises:
            EngineError: a chunk breaks a rule of :class:`Chunk`; nothing was written then.
        """
        rows = tuple(_rows(chunks))
        with self._lock:
            handle = self._open_handle()
            if len(rows) > len(self._logits):
                self._logits = np.empty((len(rows), self.vocabulary), np.float32)
                self._greedy = np.empty(len(rows), np.int32)
            logits, greedy = self._logits[: len(rows)], self._greedy[: len(rows)]
            native = (abi.Chunk * len(chunks))()
            kept = [_native(chunk, native[index]) for index, chunk in enumerate(chunks)]
            self._library.step(handle, native, logits, greedy)
            del kept
        return StepResult(rows, logits, greedy)

    def fork(self, source: int, slot: int, positions: int) -> None:
        """Makes `slot` hold the first `positions` positions of `source`, as if it had been fed them.

        Memory is shared until one of the two writes to it.

        Raises:
            EngineError: a slot does not exist, or the source is shorter.
        """
        numbers = (
            abi.int32("the source", source),
            abi.int32("the slot", slot),
            abi.int32("positions", positions),
        )
        with self._lock:
            self._library.fork(self._open_handle(), *numbers)

    def length(self, slot: int) -> int:
        """Returns how many positions a slot holds.

        Raises:
            EngineError: there is no such slot.
        """
        with self._lock:
            return self._library.length(self._open_handle(), abi.int32("the slot", slot))

    def rewindable(self, slot: int) -> int:
        """Returns the fewest positions above 0 that a slot can be taken back to; 0 when that is any number.

        A model that keeps a state of its sequence (`qwen35`) forgets only some of the last positions,
        or all: a chunk or a fork begins at 0 or from here on.
        """
        with self._lock:
            return self._library.rewindable(self._open_handle(), abi.int32("the slot", slot))

    def ahead(self, position: int) -> int:
        """Returns how many tokens may be written behind the one at a position and be taken back again."""
        if not self._state_chunk:
            return self.context
        return min(self._rewind, self._state_chunk - 1 - position % self._state_chunk)

    def close(self) -> None:
        """Frees everything the engine holds; a second call does nothing."""
        with self._lock:
            if self._handle:
                self._library.close(self._handle)
                self._handle = abi.Handle()

    def _open_handle(self) -> abi.Handle:
        if not self._handle:
            raise EngineError("the engine is closed")
        return self._handle

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_metadata(self) -> dict[str, object]:
        return decoded(self._library.metadata(self._handle))


def _reporting(progress: Callable[[int, int], None]) -> Callable[[int | None, int, int], None]:
    """Returns what the C side calls."""

    def report(_: int | None, done: int, total: int) -> None:
        progress(done, total)

    return report


def _rows(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    for chunk in chunks:
        count = len(chunk.tokens)
        first = {"none": count, "last": max(count - 1, 0), "all": 0}.get(chunk.logits)
        if first is None:
            raise EngineError(f"logits of kind {chunk.logits!r}, not 'none', 'last' or 'all'")
        rows.extend((chunk.slot, chunk.position + index) for index in range(first, count))
    return rows


def _native(chunk: Chunk, target: abi.Chunk) -> npt.NDArray[np.int32]:
    """Fills the C form of a chunk and returns the array it points into, to be kept alive."""
    try:
        tokens = np.ascontiguousarray(chunk.tokens, dtype=np.int32)
    except (OverflowError, ValueError, TypeError) as error:
        raise EngineError(f"the tokens of slot {chunk.slot} are no 32-bit integers: {error}") from error
    target.tokens = tokens.ctypes.data
    target.count = len(tokens)
    target.slot = abi.int32("a chunk's slot", chunk.slot)
    target.position = abi.int32("a chunk's position", chunk.position)
    target.logits = _LOGITS[chunk.logits]
    return tokens
