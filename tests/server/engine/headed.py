"""Tiny models with a head of their own: of floats, or of the Q8_0 that the `gguf` package makes of those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from tests.server.engine.kquants import quantize
from tests.server.engine.tiny import Tensors, TinyModel

FLOATS = (Kind.F32, Kind.F16, Kind.BF16)


@dataclass(frozen=True)
class HeadedModel(TinyModel):
    """A model of 4 bits whose head has the values of a float type."""

    tied: bool = False
    head: Kind = Kind.BF16
    quantised: bool = False  # the head is written as Q8_0

    def _tensors(self) -> Tensors:
        tensors = super()._tensors()
        values, _ = tensors["output.weight"]
        kept = np.asarray(dequantize(quantize(values, self.head), self.head), np.float32)
        tensors["output.weight"] = kept, Kind.Q8_0 if self.quantised else self.head
        return tensors


@dataclass(frozen=True)
class NarrowModel(HeadedModel):
    """Rows that are no whole blocks of Q8_0."""

    kind: Kind = Kind.F32
    embedding_kind: Kind = Kind.F32

    @property
    def width(self) -> int:
        return 72
