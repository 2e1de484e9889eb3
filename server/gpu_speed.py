"""What a device can do at best, and how near the engine comes to it.

Contract: bandwidth and matrix peak are measured on the device, beside the
engine, with plain allocations. The formulas, also in the JSON:

- copy bandwidth = 2 * bytes / seconds (each byte is read and written);
- decode's roof, tokens/s = rows * copy bandwidth / (weight bytes + rows * key/value bytes of the context);
- prefill's rate = 2 * matrix parameters * tokens / seconds (attention and the output head are left out);
- matrix peak = 2 * 4096 * int8 products (m16n8k32) / seconds, as `mma.sync` reaches it; and by the
  data sheet: multiprocessors * clock * int8 operations a clock (:data:`OPERATIONS_A_CLOCK`).

Times of the engine are those of whole steps: host work, copies of logits and all.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from server.build import EngineError
from server.engine import Chunk, Engine
from server.random_model import RandomModel

# Dense int8 operations (two a multiplication) of a multiprocessor in one clock, by compute capability.
OPERATIONS_A_CLOCK = {(8, 0): 4096, (8, 6): 2048, (8, 7): 2048, (8, 9): 2048, (9, 0): 8192}
_PRODUCT_OPERATIONS = 2 * 4096
_MESSAGE_BYTES = 1024


class _Description(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("multiprocessors", ctypes.c_int32),
        ("clock_khz", ctypes.c_int32),
        ("compute_major", ctypes.c_int32),
        ("compute_minor", ctypes.c_int32),
        ("memory_bytes", ctypes.c_uint64),
        ("free_bytes", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Device:
    """The device as the library sees it."""

    name: str
    compute: str
    multiprocessors: int
    clock_mhz: float
    memory_bytes: int
    free_bytes: int
    sheet_int8_operations_per_s: float | None  # None: a generation that the table lacks


@dataclass(frozen=True)
class Roofs:
    """The best the device did."""

    copied_bytes: int
    copy_bytes_per_s: float
    matrix_operations_per_s: float


@dataclass(frozen=True)
class Decode:
    """Steps of one token for each of `rows` sequences."""

    rows: int
    context: int
    step_ms: float
    tokens_per_s: float
    roof_tokens_per_s: float
    roof: float  # the share of it


@dataclass(frozen=True)
class Prefill:
    """One cold prompt."""

    tokens: int
    step_ms: float
    tokens_per_s: float
    operations_per_s: float
    matrix_peak: float  # the share of the measured one


class Measure:
    """The measurements that a CUDA library offers (`engine/cuda/assay_cuda.cuh`)."""

    def __init__(self, library: Path) -> None:
        """Loads it."""
        self._library = ctypes.CDLL(str(library))

    def device(self) -> Device:
        """Returns what the device is.

        Raises:
            EngineError: there is none that can be used; says why.
        """
        found = _Description()
        self._call("assay_device_describe", ctypes.byref(found))
        rate = OPERATIONS_A_CLOCK.get((found.compute_major, found.compute_minor))
        return Device(
            found.name.decode(errors="replace"),
            f"{found.compute_major}.{found.compute_minor}",
            found.multiprocessors,
            found.clock_khz / 1e3,
            found.memory_bytes,
            found.free_bytes,
            None if rate is None else found.multiprocessors * found.clock_khz * 1e3 * rate,
        )

    def roofs(self, copied_bytes: int, products: int, repeats: int) -> Roofs:
        """Measures copies of so many bytes, and so many matrix products by each of 16 warps."""
        seconds, total = ctypes.c_double(), ctypes.c_uint64()
        size = ctypes.c_uint64(copied_bytes)
        self._call("assay_device_copy_seconds", size, repeats, ctypes.byref(seconds))
        copy = 2 * copied_bytes / seconds.value
        self._call(
            "assay_device_matrix_seconds", products, 16, repeats, ctypes.byref(seconds), ctypes.byref(total)
        )
        return Roofs(copied_bytes, copy, total.value * _PRODUCT_OPERATIONS / seconds.value)

    def _call(self, name: str, *arguments: object) -> None:
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = getattr(self._library, name)(*arguments, message, ctypes.c_size_t(len(message)))
        if status != 0:
            raise EngineError(message.value.decode(errors="replace"))


def decode(engine: Engine, roofs: Roofs, rows: int, context: int, steps: int) -> Decode:
    """Measures the median step of `rows` sequences that begin at a context."""
    prompt = _tokens(engine, context)
    engine.step([Chunk(slot, 0, prompt, "none") for slot in range(rows)])
    seconds = []
    for index in range(steps):
        chunks = [Chunk(slot, context + index, [index % engine.vocabulary], "last") for slot in range(rows)]
        begin = time.perf_counter()
        engine.step(chunks)
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[2:])  # the second one captures the graph
    read = engine.weight_bytes + rows * engine.kv_bytes_per_position * (context + steps // 2)
    roof = rows * roofs.copy_bytes_per_s / read
    return Decode(rows, context, step * 1e3, rows / step, roof, rows / step / roof)


def prefill(engine: Engine, model: RandomModel, roofs: Roofs, tokens: int, repeats: int) -> Prefill:
    """Measures the median cold prompt of so many tokens, with the logits of its last one."""
    chunk = Chunk(0, 0, _tokens(engine, tokens), "last")
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        engine.step([chunk])
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[1:])
    rate = 2 * model.matrix_parameters * tokens / step
    return Prefill(tokens, step * 1e3, tokens / step, rate, rate / roofs.matrix_operations_per_s)


def _tokens(engine: Engine, count: int) -> list[int]:
    return [(index * 7919 + 13) % engine.vocabulary for index in range(count)]
