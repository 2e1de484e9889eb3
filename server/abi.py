"""The C ABI of ``engine/assay_engine.h``, field for field, for ctypes.

Contract: the structures mirror the header; :class:`Library` turns each status
into an :class:`~server.build.EngineError` with the library's own message, so
that no caller sees a raw code or pointer. ctypes releases the interpreter's
lock during every call.
"""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from server.build import EngineArgumentError, EngineError, EngineMemoryError

_VERSION = 5
_BAD_ARGUMENT = 3
_NO_MEMORY = 4
_MESSAGE_BYTES = 1024

Handle = ctypes.c_void_p
# Called with (context, bytes done, bytes in all) while weights are loaded.
Progress = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
# Called with (context, address of a Metadata), which is good until it returns.
Visit = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def int32(what: str, value: int) -> int:
    """Returns a number that the C side can hold; of a larger one ctypes would keep the low bits."""
    return _signed(what, value, 32)


def int64(what: str, value: int) -> int:
    """Returns the same of 64 bits."""
    return _signed(what, value, 64)


def _signed(what: str, value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise EngineArgumentError(f"{what}: {value} is no {bits}-bit number")
    return value


class Metadata(ctypes.Structure):
    """assay_metadata: one metadata entry as it lies in the file."""

    _fields_ = (
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_uint64),
        ("bytes", ctypes.c_void_p),
        ("byte_size", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("type", ctypes.c_uint32),
        ("item_type", ctypes.c_uint32),
    )


class TensorSource(ctypes.Structure):
    """assay_tensor_source: where and how a tensor lies that is in no GGUF file."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("path", ctypes.c_char_p),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("scale_path", ctypes.c_char_p),
        ("scale_offset", ctypes.c_uint64),
        ("scale_size", ctypes.c_uint64),
        ("columns", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("type", ctypes.c_uint32),
        ("storage", ctypes.c_uint32),
        ("factor", ctypes.c_float),
    )


class Options(ctypes.Structure):
    """assay_options: what to load and how."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("isa", ctypes.c_char_p),
        ("kv", ctypes.c_char_p),
        ("head", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("slots", ctypes.c_int32),
        ("context", ctypes.c_int32),
        ("tensors", ctypes.c_void_p),
        ("tensor_count", ctypes.c_size_t),
        ("metadata", ctypes.c_void_p),
        ("metadata_count", ctypes.c_size_t),
        ("kept_slots", ctypes.c_int32),
        ("kept_positions", ctypes.c_int64),
        ("memory_bytes", ctypes.c_uint64),
        ("progress", Progress),
        ("progress_context", ctypes.c_void_p),
    )


class Memory(ctypes.Structure):
    """assay_memory: what a device needs for a model."""

    _fields_ = (
        ("slots", ctypes.c_int32),
        ("context", ctypes.c_int32),
        ("model_context", ctypes.c_int32),
        ("largest_context", ctypes.c_int32),
        ("largest_slots", ctypes.c_int32),
        ("prefill_rows", ctypes.c_int32),
        ("weight_bytes", ctypes.c_uint64),
        ("kv_bytes", ctypes.c_uint64),
        ("state_bytes", ctypes.c_uint64),
        ("workspace_bytes", ctypes.c_uint64),
        ("loading_bytes", ctypes.c_uint64),
        ("graph_bytes", ctypes.c_uint64),
        ("driver_bytes", ctypes.c_uint64),
        ("total_bytes", ctypes.c_uint64),
        ("kv_bytes_per_position", ctypes.c_uint64),
        ("state_bytes_per_slot", ctypes.c_uint64),
    )


class Work(ctypes.Structure):
    """assay_work: what a part of a step reads, writes and computes."""

    _fields_ = (
        ("bytes", ctypes.c_uint64),
        ("int8_operations", ctypes.c_uint64),
        ("half_operations", ctypes.c_uint64),
        ("vector_operations", ctypes.c_uint64),
    )


class StepCost(ctypes.Structure):
    """assay_step_cost: a step's shape, and the work of its parts."""

    _fields_ = (
        ("sequences", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("position", ctypes.c_int32),
        ("logits", ctypes.c_int32),
        ("products", Work),
        ("attention", Work),
        ("delta", Work),
        ("between", Work),
    )


class Inspection(ctypes.Structure):
    """assay_inspection: what a header says of the engine that it would be."""

    _fields_ = (
        ("abi_version", ctypes.c_int32),
        ("context", ctypes.c_int32),
        ("vocabulary", ctypes.c_int32),
    )


class Info(ctypes.Structure):
    """assay_info: what was loaded."""

    _fields_ = (
        ("abi_version", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("slots", ctypes.c_int32),
        ("context", ctypes.c_int32),
        ("vocabulary", ctypes.c_int32),
        ("prefill_chunk", ctypes.c_int32),
        ("weight_bytes", ctypes.c_uint64),
        ("kv_bytes_per_position", ctypes.c_uint64),
        ("state_chunk", ctypes.c_int32),
        ("rewind", ctypes.c_int32),
        ("isa", ctypes.c_char_p),
        ("kv", ctypes.c_char_p),
        ("head", ctypes.c_char_p),
    )


class Chunk(ctypes.Structure):
    """assay_chunk: consecutive tokens of one slot."""

    _fields_ = (
        ("tokens", ctypes.c_void_p),
        ("count", ctypes.c_int32),
        ("slot", ctypes.c_int32),
        ("position", ctypes.c_int32),
        ("logits", ctypes.c_int32),
    )


class Library:
    """The loaded library's functions, with statuses turned into errors."""

    def __init__(self, path: Path) -> None:
        """Loads the library at a path.

        Raises:
            EngineError: the system refuses it.
        """
        try:
            self._c = ctypes.CDLL(str(path))
        except OSError as error:
            raise EngineError(f"the compiled engine {path} cannot be loaded: {error}") from error
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self._declare("assay_open", ctypes.c_int32, pointer, pointer, pointer, size)
        self._declare("assay_inspect", ctypes.c_int32, pointer, pointer, Visit, pointer, pointer, size)
        self._declare("assay_plan", ctypes.c_int32, pointer, pointer, pointer, size, pointer, size)
        self._declare("assay_close", None, pointer)
        self._declare("assay_describe", ctypes.c_int32, pointer, pointer)
        self._declare("assay_metadata_count", ctypes.c_uint64, pointer)
        self._declare("assay_metadata_entry", ctypes.c_int32, pointer, ctypes.c_uint64, pointer)
        self._declare(
            "assay_step", ctypes.c_int32, pointer, pointer, size, pointer, pointer, size, pointer, size
        )
        self._declare(
            "assay_fork",
            ctypes.c_int32,
            pointer,
            ctypes.c_int32,
            ctypes.c_int32,
            ctypes.c_int32,
            pointer,
            size,
        )
        self._declare("assay_length", ctypes.c_int32, pointer, ctypes.c_int32)
        self._declare("assay_rewindable", ctypes.c_int32, pointer, ctypes.c_int32)
        self._declare("assay_detect_isa", ctypes.c_char_p)
        self._declare("assay_read_seconds", ctypes.c_double, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int32)

    def open(self, options: Options, handle: Handle) -> None:
        """Loads a model into a handle."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self._c.assay_open(ctypes.byref(options), ctypes.byref(handle), message, len(message))
        _raise_unless_ok(status, message.value)

    def inspect(self, options: Options) -> tuple[Inspection, list[tuple[bytes, Metadata, bytes]]]:
        """Returns what a model's header says, and its metadata as :meth:`metadata` yields it."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        found, entries = Inspection(), list[tuple[bytes, Metadata, bytes]]()

        def visit(_: int | None, address: int) -> None:
            entries.append(_copied(Metadata.from_buffer_copy(Metadata.from_address(address))))

        called = Visit(visit)
        status = self._c.assay_inspect(
            ctypes.byref(options), ctypes.byref(found), called, None, message, len(message)
        )
        _raise_unless_ok(status, message.value)
        _require_version(found.abi_version)
        return found, entries

    def plan(self, options: Options, memory: Memory, steps: "ctypes.Array[StepCost]") -> None:
        """Counts what a device needs for a model, and what each of the steps costs it."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self._c.assay_plan(
            ctypes.byref(options), ctypes.byref(memory), steps, len(steps), message, len(message)
        )
        _raise_unless_ok(status, message.value)

    def close(self, handle: Handle) -> None:
        """Frees a handle."""
        self._c.assay_close(handle)

    def describe(self, handle: Handle) -> Info:
        """Returns what a handle holds."""
        info = Info()
        _raise_unless_ok(self._c.assay_describe(handle, ctypes.byref(info)), b"no description")
        _require_version(info.abi_version)
        return info

    def metadata(self, handle: Handle) -> Iterator[tuple[bytes, Metadata, bytes]]:
        """Yields each metadata entry: its key, its description and its bytes."""
        for index in range(self._c.assay_metadata_count(handle)):
            entry = Metadata()
            status = self._c.assay_metadata_entry(handle, index, ctypes.byref(entry))
            _raise_unless_ok(status, b"no such metadata entry")
            yield _copied(entry)

    def step(
        self,
        handle: Handle,
        chunks: "ctypes.Array[Chunk]",
        logits: npt.NDArray[np.float32],
        greedy: npt.NDArray[np.int32],
    ) -> None:
        """Runs one batch; logits is [rows, vocabulary] and greedy [rows], both contiguous."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self._c.assay_step(
            handle,
            chunks,
            len(chunks),
            logits.ctypes.data,
            greedy.ctypes.data,
            len(greedy),
            message,
            len(message),
        )
        _raise_unless_ok(status, message.value)

    def fork(self, handle: Handle, source: int, slot: int, positions: int) -> None:
        """Makes a slot hold the first positions of another."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self._c.assay_fork(handle, source, slot, positions, message, len(message))
        _raise_unless_ok(status, message.value)

    def length(self, handle: Handle, slot: int) -> int:
        """Returns how many positions a slot holds."""
        length = int(self._c.assay_length(handle, slot))
        if length < 0:
            raise EngineError(f"there is no slot {slot}")
        return length

    def rewindable(self, handle: Handle, slot: int) -> int:
        """Returns the fewest positions above 0 that a slot can be taken back to; 0: any number."""
        least = int(self._c.assay_rewindable(handle, slot))
        if least < 0:
            raise EngineError(f"there is no slot {slot}")
        return least

    def detect_isa(self) -> str:
        """Returns the best instruction set of this CPU that the library has a path for."""
        name: bytes = self._c.assay_detect_isa()
        return name.decode()

    def read_seconds(self, size_bytes: int, threads: int, repeats: int) -> float:
        """Returns the median seconds of reading so many bytes once with so many threads."""
        seconds = float(self._c.assay_read_seconds(size_bytes, threads, repeats))
        if seconds < 0:
            raise EngineError(f"no memory to read {size_bytes} bytes")
        return seconds

    def _declare(self, name: str, result: type | None, *arguments: type) -> None:
        function = getattr(self._c, name)
        function.restype = result
        function.argtypes = arguments


_loaded: dict[Path, Library] = {}


def load(path: Path) -> Library:
    """Returns the library at a path, loaded once in this process."""
    if path not in _loaded:
        _loaded[path] = Library(path)
    return _loaded[path]


def _copied(entry: Metadata) -> tuple[bytes, Metadata, bytes]:
    """Returns an entry with its key and its bytes in Python's own memory."""
    key = ctypes.string_at(entry.key, entry.key_size)
    return key, entry, ctypes.string_at(entry.bytes, entry.byte_size)


def _require_version(found: int) -> None:
    if found != _VERSION:
        raise EngineError(f"the compiled engine has ABI {found}, this Python part {_VERSION}")


def _raise_unless_ok(status: int, message: bytes) -> None:
    if status == _BAD_ARGUMENT:
        raise EngineArgumentError(message.decode(errors="replace"))
    if status == _NO_MEMORY:
        raise EngineMemoryError(message.decode(errors="replace"))
    if status != 0:
        raise EngineError(message.decode(errors="replace"))
