"""`python -m bench.sides.llama_cpp`: llama.cpp as a side, from the ready-built wheel `xllamacpp`.

The wheel's one extension module exports llama.cpp's C interface; only what is declared here is used of it.
The structures of parameters are never spelled out: a value is written where the library's own defaults show
its field to be (`_Parameters`), and a library whose defaults look otherwise is refused.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from bench.sides.llama_c import BATCH, MICRO_BATCH, VARIANTS, LlamaSide
from bench.sides.protocol import Handler

_ROOM = 1024  # bytes; more than any structure of parameters has
_SILENCE = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Parameters(ctypes.Structure):
    """Parameters as the library hands them out, larger than they are."""

    _fields_ = (("data", ctypes.c_uint8 * _ROOM),)


class _Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


class LlamaCpp(LlamaSide):
    """llama.cpp with its contexts."""

    def __init__(self) -> None:
        """Loads the library."""
        super().__init__()
        # Only the child loads it: it brings threads of its own.
        module: Any = importlib.import_module("xllamacpp.xllamacpp")
        self._c = ctypes.CDLL(module.__file__)
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        self._declare("llama_backend_init", None)
        self._declare("llama_log_set", None, _SILENCE, pointer)
        self._declare("llama_print_system_info", ctypes.c_char_p)
        self._declare("llama_model_default_params", _Parameters)
        self._declare("llama_context_default_params", _Parameters)
        self._declare("llama_model_load_from_file", pointer, ctypes.c_char_p, _Parameters)
        self._declare("llama_init_from_model", pointer, pointer, _Parameters)
        self._declare("llama_model_get_vocab", pointer, pointer)
        self._declare("llama_vocab_n_tokens", number, pointer)
        self._declare("llama_batch_init", _Batch, number, number, number)
        self._declare("llama_decode", number, pointer, _Batch)
        self._declare("llama_synchronize", None, pointer)
        self._declare("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), pointer, number)
        self._declare("llama_get_memory", pointer, pointer)
        self._declare("llama_memory_seq_rm", ctypes.c_bool, pointer, number, number, number)
        self._quiet = _SILENCE(lambda level, text, data: None)
        self._c.llama_log_set(self._quiet, None)
        self._c.llama_backend_init()
        self._contexts: dict[str, int] = {}
        self._batch = self._c.llama_batch_init(BATCH, 0, 1)

    def load(self, model: str, threads: int, context: int) -> Mapping[str, object]:
        """Load the model and both contexts."""
        loaded = self._c.llama_model_load_from_file(model.encode(), self._c.llama_model_default_params())
        if not loaded:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        for value, variant in enumerate(VARIANTS):
            parameters = context_parameters(
                bytes(self._c.llama_context_default_params().data), context, threads, flash_attention=value
            )
            made = self._c.llama_init_from_model(loaded, _Parameters.from_buffer_copy(parameters))
            if not made:
                raise RuntimeError(f"llama.cpp makes no context with flash attention {variant}")
            self._contexts[variant] = made
        vocabulary = self._c.llama_vocab_n_tokens(self._c.llama_model_get_vocab(loaded))
        features: bytes = self._c.llama_print_system_info()
        return {
            "vocabulary": int(vocabulary),
            "version": f"xllamacpp {version('xllamacpp')}",
            "features": features.decode().strip(" |"),
        }

    def cut(self, variant: str, length: int) -> None:
        """Forget every position from `length` on."""
        memory = self._c.llama_get_memory(self._contexts[variant])
        if not self._c.llama_memory_seq_rm(memory, 0, length, -1):
            raise RuntimeError(f"llama.cpp does not cut its memory to {length}")

    def submit(self, variant: str, tokens: Sequence[int], position: int) -> None:
        """Compute tokens and wait for the last one's logits."""
        self._decode(variant, tokens, position, every=False)
        self._c.llama_get_logits_ith(self._contexts[variant], -1)

    def logits(self, *, tokens: Sequence[int], path: str, variant: str) -> Mapping[str, object]:
        """Write the logits after every token of a fresh sequence to a .npy file, [tokens, vocabulary]."""
        self.cut(variant, 0)
        self._decode(variant, tokens, 0, every=True)
        rows = [
            np.ctypeslib.as_array(
                self._c.llama_get_logits_ith(self._contexts[variant], row), (self._vocabulary,)
            ).copy()
            for row in range(len(tokens))
        ]
        np.save(path, np.stack(rows))
        self._filled[variant] = len(tokens)
        return {"rows": len(rows)}

    def handlers(self) -> dict[str, Handler]:
        """Those of every such peer, and the logits."""
        return {**super().handlers(), "logits": self.logits}

    def _decode(self, variant: str, tokens: Sequence[int], position: int, *, every: bool) -> None:
        batch = self._batch
        batch.n_tokens = count = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row] = token
            batch.pos[row] = position + row
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = every or row == count - 1
        status = self._c.llama_decode(self._contexts[variant], batch)
        if status != 0:
            raise RuntimeError(f"llama_decode of {count} tokens at {position} answered {status}")
        self._c.llama_synchronize(self._contexts[variant])

    def _declare(self, name: str, result: type | None, *arguments: type) -> None:
        function = getattr(self._c, name)
        function.restype = result
        function.argtypes = arguments


def context_parameters(defaults: bytes, context: int, threads: int, *, flash_attention: int) -> bytearray:
    """Fill in a context's parameters.

    The defaults begin with n_ctx 512, n_batch 2048, n_ubatch 512, n_seq_max 1; then, wherever they lie,
    come two equal numbers of threads, at most two other fields, and four enumerations at -1 (rope scaling,
    pooling, attention, flash attention) before two zero frequencies and the -1.0 of YaRN.

    Raises:
        RuntimeError: these defaults look otherwise.
    """
    if struct.unpack_from("<4I", defaults) != (512, 2048, 512, 1):
        raise RuntimeError("llama.cpp's context parameters do not begin as expected: another layout")
    enumerations = struct.pack("<4i3f", -1, -1, -1, -1, 0.0, 0.0, -1.0)
    at = defaults.find(enumerations, 16, 128)
    for first in range(at - 8, at - 20, -4) if at > 0 else ():
        one, two = struct.unpack_from("<2i", defaults, first)
        if one == two >= 1:
            filled = bytearray(defaults)
            struct.pack_into("<3I", filled, 0, context, BATCH, MICRO_BATCH)
            struct.pack_into("<2i", filled, first, threads, threads)
            struct.pack_into("<i", filled, at + 12, flash_attention)
            return filled
    raise RuntimeError(
        "llama.cpp's context parameters hold no numbers of threads where expected: another layout"
    )


if __name__ == "__main__":
    LlamaCpp().serve()
