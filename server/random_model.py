"""A `llama` model of random weights in a GGUF file, of any size: what a device is tested and measured with.

Contract: the file is complete and valid for the engine (no tokenizer); its bytes
are a function of the :class:`RandomModel` alone. Matrices are Q4_1 with scales of
a size that keeps activations near one, the token embedding (also the output
head) is Q8_0, norms are ones. The random bytes of a large matrix repeat every
few MiB, which no kernel can tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from server.gguf_header import F32, Q4_1, Q8_0, Entry, Value, header, padded

_BLOCK = 32
_TYPE_F32, _TYPE_Q4_1, _TYPE_Q8_0 = 0, 3, 8
_KINDS = {kind.number: kind for kind in (F32, Q4_1, Q8_0)}
_PERIOD_BLOCKS = 1 << 17


@dataclass(frozen=True)
class RandomModel:
    """The shape of the model; the defaults are a tiny one."""

    layers: int = 2
    width: int = 96
    ffn: int = 160
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 32
    vocabulary: int = 75
    context: int = 512
    seed: int = 7

    @property
    def matrix_parameters(self) -> int:
        """Weights that every token of a prompt meets (the head apart)."""
        return sum(rows * columns for _, rows, columns in self._matrices()) * self.layers

    def write(self, path: Path) -> None:
        """Writes the file."""
        tensors = list(self._tensors())
        head = header(self._metadata(), [Entry(name, _KINDS[kind], shape) for name, kind, shape in tensors])
        with path.open("wb") as file:
            file.write(head)
            for index, (_, kind, shape) in enumerate(tensors):
                size = _size(kind, math.prod(shape))
                for part in self._bytes(kind, shape, index):
                    file.write(part)
                file.write(b"\0" * (padded(size) - size))

    def _metadata(self) -> dict[str, Value]:
        return {
            "general.architecture": "llama",
            "llama.block_count": self.layers,
            "llama.context_length": self.context,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.ffn,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.key_length": self.head_dim,
            "llama.attention.value_length": self.head_dim,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0,
            "llama.rope.dimension_count": self.head_dim,
        }

    def _matrices(self) -> tuple[tuple[str, int, int], ...]:
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            ("attn_q", q_width, self.width),
            ("attn_k", kv_width, self.width),
            ("attn_v", kv_width, self.width),
            ("attn_output", self.width, q_width),
            ("ffn_gate", self.ffn, self.width),
            ("ffn_up", self.ffn, self.width),
            ("ffn_down", self.width, self.ffn),
        )

    def _tensors(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        yield "token_embd.weight", _TYPE_Q8_0, (self.width, self.vocabulary)
        yield "output_norm.weight", _TYPE_F32, (self.width,)
        for layer in range(self.layers):
            for name in ("attn_norm", "ffn_norm"):
                yield f"blk.{layer}.{name}.weight", _TYPE_F32, (self.width,)
            for name, rows, columns in self._matrices():
                yield f"blk.{layer}.{name}.weight", _TYPE_Q4_1, (columns, rows)

    def _bytes(self, kind: int, shape: tuple[int, ...], index: int) -> Iterator[bytes]:
        if kind == _TYPE_F32:
            yield np.ones(shape, np.float32).tobytes()
            return
        blocks = math.prod(shape) // _BLOCK
        random = np.random.default_rng([self.seed, index])
        period = random_blocks(random, kind, min(blocks, _PERIOD_BLOCKS), 1 / math.sqrt(shape[0])).tobytes()
        whole, rest = divmod(_size(kind, blocks * _BLOCK), len(period))
        for _ in range(whole):
            yield period
        yield period[:rest]


def random_blocks(
    random: np.random.Generator, kind: int, blocks: int, deviation: float
) -> npt.NDArray[np.uint8]:
    """Returns the bytes of Q4_0, Q4_1 or Q8_0 blocks, a row each, of about the standard deviation."""
    scales = random.uniform(0.8, 1.2, (blocks, 1))
    if kind == _TYPE_Q4_1:
        scale = (scales * deviation / 4.6).astype(np.float16)
        minimum = (-7.5 * scale.astype(np.float32)).astype(np.float16)
        parts = [
            scale.view(np.uint8),
            minimum.view(np.uint8),
            random.integers(0, 256, (blocks, 16), np.uint8),
        ]
    elif kind == _TYPE_Q8_0:
        scale = (scales * deviation / 73).astype(np.float16)
        parts = [scale.view(np.uint8), random.integers(0, 256, (blocks, 32), np.uint8)]
    else:  # Q4_0
        scale = (scales * deviation / 4.6).astype(np.float16)
        parts = [scale.view(np.uint8), random.integers(0, 256, (blocks, 16), np.uint8)]
    return np.concatenate(parts, axis=1)


def _size(kind: int, values: int) -> int:
    return values * 4 if kind == _TYPE_F32 else values // _BLOCK * (20 if kind == _TYPE_Q4_1 else 34)
