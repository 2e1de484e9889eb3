"""`python -m bench.sides.ik_llama_cpp`: ik_llama.cpp as a side, through the low-level face of its wheel."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from bench.sides.llama_c import BATCH, MICRO_BATCH, VARIANTS, LlamaSide


class IkLlamaCpp(LlamaSide):
    """ik_llama.cpp with its contexts."""

    def __init__(self) -> None:
        """Loads the library."""
        super().__init__()
        # Only the child loads it: it brings threads of its own.
        self._api: Any = importlib.import_module("ik_llama_cpp._ctypes_api")
        api = self._api
        self._c = api._lib
        self._c.llama_print_system_info.restype = ctypes.c_char_p
        self._c.llama_synchronize.argtypes = (ctypes.c_void_p,)
        self._c.llama_synchronize.restype = None
        number = ctypes.c_int32
        self._c.llama_kv_cache_seq_rm.argtypes = (ctypes.c_void_p, number, number, number)
        self._c.llama_kv_cache_seq_rm.restype = ctypes.c_bool
        api.llama_backend_init()
        self._batch = api.llama_batch_init(BATCH, 0, 1)
        self._contexts: dict[str, int] = {}

    def load(self, model: str, threads: int, context: int) -> Mapping[str, object]:
        """Load the model and both contexts."""
        loaded = self._api.llama_model_load_from_file(model.encode(), self._api.llama_model_default_params())
        if not loaded:
            raise RuntimeError(f"ik_llama.cpp cannot load {model}")
        for value, variant in enumerate(VARIANTS):
            parameters = self._api.llama_context_default_params()
            parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = context, BATCH, MICRO_BATCH
            parameters.n_threads = parameters.n_threads_batch = threads
            parameters.flash_attn = bool(value)
            made = self._api.llama_init_from_model(loaded, parameters)
            if not made:
                raise RuntimeError(f"ik_llama.cpp makes no context with flash attention {variant}")
            self._contexts[variant] = made
        features: bytes = self._c.llama_print_system_info()
        return {
            "vocabulary": int(self._api.llama_vocab_n_tokens(self._api.llama_model_get_vocab(loaded))),
            "version": f"ik-llama-cpp-python {version('ik-llama-cpp-python')}",
            "features": features.decode().strip(" |"),
        }

    def cut(self, variant: str, length: int) -> None:
        """Forget every position from `length` on."""
        if not self._c.llama_kv_cache_seq_rm(self._contexts[variant], 0, length, -1):
            raise RuntimeError(f"ik_llama.cpp does not cut its cache to {length}")

    def submit(self, variant: str, tokens: Sequence[int], position: int) -> None:
        """Compute tokens and wait for the last one's logits."""
        batch = self._batch
        batch.n_tokens = count = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row] = token
            batch.pos[row] = position + row
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = row == count - 1
        status = self._api.llama_decode(self._contexts[variant], batch)
        if status != 0:
            raise RuntimeError(f"llama_decode of {count} tokens at {position} answered {status}")
        self._c.llama_synchronize(self._contexts[variant])
        self._api.llama_get_logits_ith(self._contexts[variant], count - 1)


if __name__ == "__main__":
    IkLlamaCpp().serve()
