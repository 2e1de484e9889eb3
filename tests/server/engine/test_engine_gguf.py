"""Hostile model files: every truncated, altered or absurd one is an error with a message, never a crash."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from server.engine import Chunk, Engine, EngineError
from tests.server.engine.tiny import TinyModel

SMALL = TinyModel(layers=1, heads=1, head_dim=32, ffn=32, vocabulary=33, context=64)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    SMALL.write(path)
    return path.read_bytes()


def header_size(data: bytes) -> int:
    """Where the tensors begin: behind the last tensor's name, shape, type and offset."""
    name = b"output_norm.weight"
    return data.rindex(name) + len(name) + 4 + 8 + 4 + 8


def load(data: bytes, folder: Path) -> str | None:
    """Loads and runs a file; the error's message, or None when the engine served it."""
    path = folder / "model.gguf"
    path.write_bytes(data)
    try:
        with Engine(path, threads=1, slots=1) as engine:
            engine.step([Chunk(0, 0, [0, engine.vocabulary - 1], "all")])
    except EngineError as error:
        message = str(error)
        assert message
        return message
    return None


def test_the_whole_file_is_served(whole: bytes, tmp_path: Path) -> None:
    assert load(whole, tmp_path) is None


def test_every_truncation_is_an_error(whole: bytes, tmp_path: Path) -> None:
    end = header_size(whole)
    for size in [*range(0, end, 7), *range(end, len(whole), 997), len(whole) - 33]:
        assert load(whole[:size], tmp_path) is not None, size


def test_no_flipped_bit_of_the_header_crashes(whole: bytes, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    refused = 0
    for at in random.choice(header_size(whole), 400, replace=False):
        changed = bytearray(whole)
        changed[at] ^= 1 << int(random.integers(8))
        refused += load(bytes(changed), tmp_path) is not None
    assert refused > 100


def test_no_flipped_bytes_of_the_tensors_crash(whole: bytes, tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    start = header_size(whole)
    for _ in range(100):
        changed = bytearray(whole)
        for at in random.integers(start, len(whole), 40):
            changed[at] = int(random.integers(256))
        load(bytes(changed), tmp_path)


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


def tensor_field(data: bytes, name: str, skip: int, new: bytes) -> bytes:
    """Overwrites bytes `skip` behind a tensor's name: its dimensions 0, shape 4, then type and offset."""
    key = struct.pack("<Q", len(name)) + name.encode()
    at = data.index(key) + len(key) + skip
    return data[:at] + new + data[at + len(new) :]


def key_value(data: bytes, name: str, skip: int, new: bytes) -> bytes:
    """Overwrites bytes `skip` behind a metadata key: its type 0, its value 4."""
    return tensor_field(data, name, skip, new)


HUGE = struct.pack("<Q", 2**63)


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("does not begin with 'GGUF'", lambda d: b"GGML" + d[4:]),
        ("GGUF version 2", lambda d: d[:4] + struct.pack("<I", 2) + d[8:]),
        ("GGUF version 50331648", lambda d: d[:4] + struct.pack(">I", 3) + d[8:]),
        ("claims 9223372036854775808 tensors", lambda d: d[:8] + HUGE + d[16:]),
        ("claims 9223372036854775808 metadata entries", lambda d: d[:16] + HUGE + d[24:]),
        ("the file ends inside a metadata key", lambda d: d[:24] + HUGE + d[32:]),
        ("unknown value type 77", lambda d: key_value(d, "llama.block_count", 0, struct.pack("<I", 77))),
        (
            "'llama.block_count' is not an integer",
            lambda d: key_value(d, "llama.block_count", 0, struct.pack("<I", 6)),
        ),
        ("'llama.block_count' is 0", lambda d: key_value(d, "llama.block_count", 4, bytes(4))),
        (
            "more than the file has tensors",
            lambda d: key_value(d, "llama.block_count", 4, struct.pack("<I", 4000)),
        ),
        ("'llama.context_length' is 0", lambda d: key_value(d, "llama.context_length", 4, bytes(4))),
        ("do not share 3", lambda d: key_value(d, "llama.attention.head_count_kv", 4, struct.pack("<I", 3))),
        ("claims 9223372036854775808 items", lambda d: key_value(d, "tiny.numbers", 8, HUGE)),
        ("an array of arrays", lambda d: key_value(d, "tiny.numbers", 4, struct.pack("<I", 9))),
        (
            "tensor 'blk.0.attn_q.weight' stands twice",
            lambda d: d.replace(b"blk.0.attn_k.", b"blk.0.attn_q."),
        ),
        (
            "key 'tiny.flag' stands twice",
            lambda d: replaced(d, b"tiny.numbers", b"tiny.flag\0\0\0").replace(
                struct.pack("<Q", 12) + b"tiny.flag\0\0\0", struct.pack("<Q", 9) + b"tiny.flag"
            ),
        ),
        ("has 0 dimensions", lambda d: tensor_field(d, "token_embd.weight", 0, bytes(4))),
        ("has 9 dimensions", lambda d: tensor_field(d, "token_embd.weight", 0, struct.pack("<I", 9))),
        ("a dimension of zero", lambda d: tensor_field(d, "token_embd.weight", 12, bytes(8))),
        ("larger than can be addressed", lambda d: tensor_field(d, "token_embd.weight", 12, HUGE)),
        (
            "past the end of the file",
            lambda d: tensor_field(d, "token_embd.weight", 12, struct.pack("<Q", 2**20)),
        ),
        (
            "no multiple of the block",
            lambda d: tensor_field(d, "token_embd.weight", 4, struct.pack("<Q", 33)),
        ),
        (
            "no multiple of the block of Q4_K",
            lambda d: tensor_field(d, "token_embd.weight", 20, struct.pack("<I", 12)),
        ),
        (
            "tensor 'token_embd.weight': tensor type 10 (Q2_K) is not supported",
            lambda d: tensor_field(d, "token_embd.weight", 20, struct.pack("<I", 10)),
        ),
        (
            "tensor type 40 (NVFP4 as GGUF stores it) is not supported",
            lambda d: tensor_field(d, "token_embd.weight", 20, struct.pack("<I", 40)),
        ),
        (
            "tensor type 4 is not supported",
            lambda d: tensor_field(d, "token_embd.weight", 20, struct.pack("<I", 4)),
        ),
        # The numbers of the row forms that safetensors are read into.
        *(
            (
                f"tensor type {number} is not supported",
                lambda d, number=number: tensor_field(d, "token_embd.weight", 20, struct.pack("<I", number)),
            )
            for number in (1000, 1001, 1002)
        ),
        ("unaligned offset", lambda d: tensor_field(d, "output_norm.weight", 16, struct.pack("<Q", 3))),
        (
            "past the end of the file",
            lambda d: tensor_field(d, "output_norm.weight", 16, struct.pack("<Q", 2**64 - 32)),
        ),
        ("overlap", lambda d: tensor_field(d, "output_norm.weight", 16, bytes(8))),
        (
            "'blk.0.attn_k.weight' is missing",
            lambda d: replaced(d, b"blk.0.attn_k.weight", b"blk.0.attn_K.weight"),
        ),
        (
            "architecture 'lxama'",
            lambda d: replaced(d, struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 5) + b"lxama"),
        ),
        (
            "not UTF-8",
            lambda d: replaced(d, struct.pack("<Q", 3) + b"t32", struct.pack("<Q", 3) + b"\xff\xfe\xfd"),
        ),
    ],
)
def test_an_absurd_value_is_named(whole: bytes, tmp_path: Path, why: str, change: object) -> None:
    assert callable(change)
    message = load(change(whole), tmp_path)
    assert message is not None
    assert why in message


def test_an_unused_tensor_is_refused_rather_than_ignored(tmp_path: Path) -> None:
    path = tmp_path / "bias.gguf"
    TinyModel(layers=2).write(path)
    data = key_value(path.read_bytes(), "llama.block_count", 4, struct.pack("<I", 1))
    assert "'blk.1." in str(load(data, tmp_path))


def test_a_norm_in_blocks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "norm.gguf"
    SMALL.write(path)
    data = tensor_field(path.read_bytes(), "output_norm.weight", 12, struct.pack("<I", int(Kind.Q8_0)))
    assert "'output_norm.weight' is Q8_0; norms and other vectors must be F32, F16 or BF16" in str(
        load(data, tmp_path)
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing.gguf", "No such file"),
        (".", "config.json cannot be read: No such file"),
        ("empty.gguf", "is empty"),
    ],
)
def test_what_is_no_file_is_an_error(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(EngineError, match=why):
        Engine(tmp_path / name)
