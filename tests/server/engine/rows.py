"""The rows of one tensor of a directory, as a loader of the engine reads them, and what they mean."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from server import abi
from server.build import ensure_built
from server.checkpoint_forms import Source
from server.description import native_source

BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 1000: (128, 66), 1001: (128, 66), 1002: (32, 18)}


class RefusedError(Exception):
    """The engine's words on a tensor that it refuses."""


def read_rows(source: Source, first: int, count: int) -> npt.NDArray[np.uint8]:
    """Rows in row form, one array row each."""
    values, size = BLOCKS[source.kind]
    row_bytes = source.columns // values * size
    return native_rows(native_source(source), first, count, row_bytes)


def native_rows(
    source: abi.TensorSource, first: int, count: int, row_bytes: int, head: str | None = None
) -> npt.NDArray[np.uint8]:
    """The same of a description in C's form, where asked as an output head would be read."""
    out = np.empty((count, row_bytes), np.uint8)
    message = ctypes.create_string_buffer(1024)
    library = ctypes.CDLL(str(ensure_built().library))
    status = library.assay_op_rows(
        ctypes.byref(source),
        None if head is None else head.encode(),
        ctypes.c_int32(first),
        ctypes.c_int32(count),
        ctypes.c_void_p(out.ctypes.data),
        ctypes.c_uint64(out.nbytes),
        message,
        ctypes.c_size_t(len(message)),
    )
    if status:
        raise RefusedError(message.value.decode())
    return out


def meaning(source: Source, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """What rows in row form mean, one after the other (engine/dequantise.h)."""
    library = ctypes.CDLL(str(ensure_built().library))
    out = np.empty((len(rows), source.columns), np.float32)
    for row, values in zip(rows, out, strict=True):
        status = library.assay_op_dequantise(
            ctypes.c_uint32(source.kind),
            ctypes.c_float(source.factor),
            ctypes.c_void_p(row.ctypes.data),
            ctypes.c_int32(source.columns),
            ctypes.c_void_p(values.ctypes.data),
        )
        assert status == 0, source
    return out
