"""The header of a GGUF file: metadata, and where tensors lie behind it."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 32
_U32, _F32, _STRING, _ARRAY = 4, 6, 8, 9  # GGUF value types

Value = str | int | float | tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """A tensor type."""

    number: int
    block_values: int
    block_bytes: int

    def size_bytes(self, values: int) -> int:
        """Return what so many values take."""
        return values // self.block_values * self.block_bytes


F32 = Kind(0, 1, 4)
Q4_0 = Kind(2, 32, 18)
Q4_1 = Kind(3, 32, 20)
Q8_0 = Kind(8, 32, 34)
Q4_K = Kind(12, 256, 144)
Q5_K = Kind(13, 256, 176)
Q6_K = Kind(14, 256, 210)


@dataclass(frozen=True)
class Entry:
    """A tensor of the file."""

    name: str
    kind: Kind
    shape: tuple[int, ...]  # the length of a row first

    @property
    def size_bytes(self) -> int:
        """What its values take."""
        return self.kind.size_bytes(math.prod(self.shape))


def padded(size: int) -> int:
    """Return a size rounded up to the file's alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def header(metadata: Mapping[str, Value], tensors: Sequence[Entry]) -> bytes:
    """Return the header, padded, of a file whose tensors follow it in order, each padded."""
    out = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)))
    for key, value in metadata.items():
        out += _text(key) + _value(value)
    offset = 0
    for tensor in tensors:
        dimensions = len(tensor.shape)
        out += _text(tensor.name) + struct.pack(f"<I{dimensions}Q", dimensions, *tensor.shape)
        out += struct.pack("<IQ", tensor.kind.number, offset)
        offset += padded(tensor.size_bytes)
    return bytes(out.ljust(padded(len(out)), b"\0"))


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, tuple):
        return struct.pack(f"<IIQ{len(value)}I", _ARRAY, _U32, len(value), *value)
    return struct.pack("<If", _F32, value) if isinstance(value, float) else struct.pack("<II", _U32, value)


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data
