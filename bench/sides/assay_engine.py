"""`python -m bench.sides.assay_engine`: our engine as a side, in a process of its own.

Contract: the engine alone, without HTTP or sampling. `prefill` is one cold step over a prompt with the last
token's logits; `decode` steps of one token a sequence, each with its logits, after which the context is as
before. `read` and `peak` measure what the machine offers, with the library's own reader and the same
threads.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from bench.machine import memory_of
from bench.peak import Kind, int8_peak
from bench.sides.protocol import serve, token_ids
from server import abi
from server.engine import Chunk, Engine
from server.tokenizer import Tokenizer

READ_REPEATS = 9


class BareEngine(Engine):
    """The engine without the interpreter's copy of the model's metadata: what memory is measured of."""

    def _read_metadata(self) -> dict[str, object]:
        return {}


class AssaySide:
    """The opened engine and how much of each slot is filled."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._opened: Engine | None = None
        self._filled: dict[int, int] = {}
        self._scored: list[int] = []

    @property
    def _engine(self) -> Engine:
        if self._opened is None:
            raise RuntimeError("no model is open")
        return self._opened

    def open(
        self,
        *,
        model: str,
        threads: int,
        context: int,
        slots: int = 1,
        isa: str | None = None,
        kv: Literal["f16", "int8", "q4"] = "f16",
        bare: bool = False,
    ) -> Mapping[str, object]:
        """Open a model; what was open before is closed."""
        if self._opened is not None:
            self._opened.close()
        begin = time.perf_counter()
        self._opened = (BareEngine if bare else Engine)(
            Path(model), threads=threads, slots=slots, context=context, isa=isa, kv=kv
        )
        seconds = time.perf_counter() - begin
        self._filled, self._scored = {}, []
        engine = self._engine
        self._step(0, 0, 64, 1)
        return {
            "isa": engine.isa,
            "library_sha256": engine.build.library_sha256,
            "compiler": engine.build.compiler,
            "open_s": seconds,
            "weight_bytes": engine.weight_bytes,
            "kv_bytes_per_position": engine.kv_bytes_per_position,
            "vocabulary": engine.vocabulary,
            "macs": multiply_adds(engine.metadata),
        }

    def prefill(self, *, tokens: int, seed: int) -> Mapping[str, object]:
        """Seconds of one cold prompt in slot 0."""
        return {"seconds": self._step(0, 0, tokens, seed)}

    def decode(self, *, context: int, tokens: int, seed: int, batch: int = 1) -> Mapping[str, object]:
        """Seconds of so many steps of one token in each of `batch` slots, after `context` positions."""
        engine = self._engine
        for slot in range(batch):
            if self._filled.get(slot, 0) < context:
                self._step(slot, 0, context, seed + slot)
        ids = token_ids(tokens * batch, seed, engine.vocabulary)
        steps = [
            [Chunk(slot, context + step, [ids[step * batch + slot]], "last") for slot in range(batch)]
            for step in range(tokens)
        ]
        begin = time.perf_counter()
        for chunks in steps:
            engine.step(chunks)
        seconds = time.perf_counter() - begin
        for slot in range(batch):
            self._filled[slot] = context
        return {"seconds": seconds}

    def read(self, *, size_bytes: int, threads: int) -> Mapping[str, object]:
        """Seconds of reading so many bytes once, median of some."""
        library = abi.load(self._engine.build.library)
        return {"seconds": library.read_seconds(size_bytes, threads, READ_REPEATS)}

    def peak(self, *, kind: Kind, threads: int) -> Mapping[str, object]:
        """Multiply-adds of bytes a second, or null where the CPU cannot."""
        return {"macs_per_s": int8_peak(kind, threads)}

    def tokenize(self, *, text: str) -> Mapping[str, object]:
        """The model's token ids of a text."""
        return {"tokens": Tokenizer(self._engine.metadata).encode(text)}

    def logits(self, *, tokens: Sequence[int], path: str, one_by_one: int = 0) -> Mapping[str, object]:
        """Write the logits after every token of a fresh sequence to a .npy file, [tokens, vocabulary].

        With `one_by_one` only those of the last so many tokens, each of them decoded in a step of its own.
        """
        prompt = len(tokens) - one_by_one
        result = self._engine.step([Chunk(0, 0, tokens[:prompt], "none" if one_by_one else "all")])
        rows = [result.logits.copy()]
        for position in range(prompt, len(tokens)):
            rows.append(self._engine.step([Chunk(0, position, [tokens[position]], "last")]).logits.copy())
        np.save(path, np.concatenate(rows))
        self._filled[0] = len(tokens)
        return {"rows": sum(len(row) for row in rows)}

    def score(self, *, tokens: Sequence[int], wanted: Sequence[int]) -> Mapping[str, object]:
        """Log-probabilities of the wanted tokens after a prompt, and the likeliest token at each of them.

        What the last prompt had in common with this one is kept.
        """
        prompt = [*tokens, *wanted[:-1]]
        known = self._scored
        shared = next((i for i, (a, b) in enumerate(zip(prompt, known, strict=False)) if a != b), len(known))
        shared = min(shared, len(tokens) - 1)
        if len(tokens) - 1 > shared:
            self._engine.step([Chunk(0, shared, prompt[shared : len(tokens) - 1], "none")])
        logits = self._engine.step([Chunk(0, len(tokens) - 1, prompt[len(tokens) - 1 :], "all")]).logits
        self._scored = prompt
        exact = logits.astype(np.float64)
        exact -= exact.max(-1, keepdims=True)
        exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
        chosen = [float(row[token]) for row, token in zip(exact, wanted, strict=True)]
        return {"log_probabilities": chosen, "likeliest": [int(row.argmax()) for row in exact]}

    def resident(self) -> Mapping[str, object]:
        """Bytes of this process that are in memory, and the most that ever were."""
        return memory_of("self")

    def _step(self, slot: int, position: int, tokens: int, seed: int) -> float:
        engine = self._engine
        chunk = Chunk(slot, position, token_ids(tokens, seed, engine.vocabulary), "last")
        begin = time.perf_counter()
        engine.step([chunk])
        seconds = time.perf_counter() - begin
        self._filled[slot] = position + tokens
        return seconds


def multiply_adds(metadata: Mapping[str, object]) -> dict[str, int]:
    """Multiply-adds with weights: of a token in the layers, and of the head for a row of logits."""

    def number(name: str, default: int = 0) -> int:
        value = metadata.get(f"llama.{name}", default)
        return value if isinstance(value, int) else default

    width, ffn = number("embedding_length"), number("feed_forward_length")
    heads = number("attention.head_count")
    head = number("attention.key_length", width // max(heads, 1))
    attention = 2 * width * head * (heads + number("attention.head_count_kv", heads))
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocabulary = len(tokens) if isinstance(tokens, list) else 0
    return {
        "layers": number("block_count") * (attention + 3 * width * ffn),
        "head": width * vocabulary,
    }


if __name__ == "__main__":
    side = AssaySide()
    serve(
        {
            "open": side.open,
            "prefill": side.prefill,
            "decode": side.decode,
            "read": side.read,
            "peak": side.peak,
            "tokenize": side.tokenize,
            "logits": side.logits,
            "score": side.score,
            "resident": side.resident,
        }
    )
