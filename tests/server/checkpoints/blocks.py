"""Random blocks of K-quants, which the `gguf` package reads but does not make.

Scales are such that a row of `columns` values has about the size of a normalised one; every 6-bit scale and
minimum, every sign and every code occurs.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind

# Of a block's values, for a scale of 1: 6-bit scales about 31, codes of 4, 5 and 6 bits; measured, not exact.
_SPREAD = {Kind.Q4_K: 220.0, Kind.Q5_K: 440.0, Kind.Q6_K: 1366.0}


def random_blocks(kind: Kind, shape: tuple[int, ...], random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Bytes of a matrix of that type, [rows, bytes of a row]."""
    rows, columns = shape
    values, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows, columns // values, size), dtype=np.uint8)
    signs = random.choice(np.array([-1.0, 1.0]), (rows, columns // values, 1))
    scale = signs * random.uniform(0.5, 1.5, signs.shape) / (_SPREAD[kind] * math.sqrt(columns))
    if kind == Kind.Q6_K:
        blocks[..., -2:] = scale.astype("<f2").view(np.uint8)
    else:  # the minimum takes away the codes' mean
        codes = 7.5 if kind == Kind.Q4_K else 15.5
        blocks[..., 0:2] = scale.astype("<f2").view(np.uint8)
        blocks[..., 2:4] = (codes * scale).astype("<f2").view(np.uint8)
    return blocks.reshape(rows, -1)
