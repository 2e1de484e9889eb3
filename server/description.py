"""A checkpoint as the C ABI takes it: `assay_tensor_source` and `assay_metadata`, with what they point into.

Contract: a :class:`Description` holds everything that the pointers it gives to an
:class:`~server.abi.Options` lead to, so it must outlive the call that reads them, and no longer. It fills
the same fields for every call that takes options.
"""

from __future__ import annotations

import ctypes
import os
import struct

from server import abi
from server.checkpoint import Checkpoint, Value
from server.checkpoint_forms import Source

# GGUF's numbers of value types.
_U64, _I32, _F64, _BOOLEAN, _STRING, _ARRAY = 10, 5, 12, 7, 8, 9


class Description:
    """The two tables of a checkpoint in C's form."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._kept: list[object] = []
        self._tensors = (abi.TensorSource * len(checkpoint.tensors))(*map(native_source, checkpoint.tensors))
        self._metadata = (abi.Metadata * len(checkpoint.metadata))(
            *(self._entry(key, value) for key, value in checkpoint.metadata.items())
        )

    def fill(self, options: abi.Options) -> None:
        """Let the options name the tables."""
        options.tensors = ctypes.addressof(self._tensors)
        options.tensor_count = len(self._tensors)
        options.metadata = ctypes.addressof(self._metadata)
        options.metadata_count = len(self._metadata)

    def _entry(self, key: str, value: Value) -> abi.Metadata:
        kind, item, count, data = _encoded(value)
        name = key.encode()
        keyed, kept = (
            ctypes.create_string_buffer(name, len(name)),
            ctypes.create_string_buffer(data, len(data)),
        )
        self._kept += [keyed, kept]
        return abi.Metadata(
            ctypes.addressof(keyed), len(name), ctypes.addressof(kept), len(data), count, kind, item
        )


def native_source(source: Source) -> abi.TensorSource:
    """Return a tensor's description in C's form; its texts live as long as it does."""
    scales = source.scales
    return abi.TensorSource(
        source.name.encode(),
        os.fsencode(source.values.path),
        source.values.offset,
        source.values.size_bytes,
        None if scales is None else os.fsencode(scales.path),
        0 if scales is None else scales.offset,
        0 if scales is None else scales.size_bytes,
        source.columns,
        source.rows,
        source.kind,
        source.storage,
        source.factor,
    )


def _encoded(value: Value) -> tuple[int, int, int, bytes]:
    """Return a value's type, its items' type, how many there are, and their bytes."""
    match value:
        case bool():
            return _BOOLEAN, _BOOLEAN, 1, struct.pack("<?", value)
        case int():
            return _U64, _U64, 1, struct.pack("<Q", value)
        case float():
            return _F64, _F64, 1, struct.pack("<d", value)
        case str():
            data = value.encode()
            return _STRING, _STRING, 1, struct.pack("<Q", len(data)) + data
        case _:
            return _ARRAY, _I32, len(value), struct.pack(f"<{len(value)}i", *value)
