"""A side that speaks llama.cpp's C interface: what both peers of that family share.

Contract: `llama_decode` is called directly, as llama.cpp's own benchmark does: no server, no sampler.
`prefill` is one cold prompt with the last token's logits, `decode` steps of one token with logits, after
which the context is cut back to what it was. There is one context for each way of attention ("off" and
"on": flash attention), over one loaded model. Batches go through `submit`, which the two peers fill in.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from bench.sides.protocol import Handler, serve, token_ids

BATCH = 2048  # tokens in one call
MICRO_BATCH = 512  # llama.cpp's own default
VARIANTS = ("off", "on")


class LlamaSide(ABC):
    """A loaded peer."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._filled: dict[str, int] = {}
        self._vocabulary = 0

    @abstractmethod
    def load(self, model: str, threads: int, context: int) -> Mapping[str, object]:
        """Load the model and a context for each variant; what it says of itself, with `vocabulary`."""

    @abstractmethod
    def cut(self, variant: str, length: int) -> None:
        """Forget every position from `length` on."""

    @abstractmethod
    def submit(self, variant: str, tokens: Sequence[int], position: int) -> None:
        """Compute tokens from a position on and wait for the last one's logits."""

    def open(self, *, model: str, threads: int, context: int) -> Mapping[str, object]:
        """Load and warm up."""
        begin = time.perf_counter()
        described = self.load(model, threads, context)
        seconds = time.perf_counter() - begin
        vocabulary = described["vocabulary"]
        self._vocabulary = vocabulary if isinstance(vocabulary, int) else 0
        for variant in VARIANTS:
            self.prefill(tokens=64, seed=1, variant=variant)
        return {**described, "open_s": seconds}

    def prefill(self, *, tokens: int, seed: int, variant: str) -> Mapping[str, object]:
        """Seconds of one cold prompt."""
        ids = token_ids(tokens, seed, self._vocabulary)
        self.cut(variant, 0)
        begin = time.perf_counter()
        self.submit(variant, ids, 0)
        seconds = time.perf_counter() - begin
        self._filled[variant] = tokens
        return {"seconds": seconds}

    def decode(self, *, context: int, tokens: int, seed: int, variant: str) -> Mapping[str, object]:
        """Seconds of so many steps of one token after `context` positions."""
        if self._filled[variant] < context:
            self.prefill(tokens=context, seed=seed, variant=variant)
        self.cut(variant, context)
        ids = token_ids(tokens, seed, self._vocabulary)
        begin = time.perf_counter()
        for step, token in enumerate(ids):
            self.submit(variant, (token,), context + step)
        seconds = time.perf_counter() - begin
        self.cut(variant, context)
        self._filled[variant] = context
        return {"seconds": seconds}

    def serve(self) -> None:
        """Answer until standard input ends."""
        serve(self.handlers())

    def handlers(self) -> dict[str, Handler]:
        """What it can be asked."""
        return {"open": self.open, "prefill": self.prefill, "decode": self.decode}
