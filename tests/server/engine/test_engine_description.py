"""What the engine is told of a directory is checked again by the engine: a caller's mistake is no crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from server import abi
from server.build import EngineError, ensure_built
from server.checkpoint import read
from server.description import Description
from tests.server.engine.tiny_checkpoint import TinyCheckpoint

MODEL = TinyCheckpoint("F32", layers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODEL.write(tmp_path_factory.mktemp("described"))


def opened(folder: Path, change: Callable[[abi.Options, abi.Metadata, abi.TensorSource], None]) -> int:
    """The vocabulary of the model as it is described, after a change of the description."""
    description = Description(read(folder))
    options = abi.Options(path=b"unread", threads=1, slots=1)
    description.fill(options)
    layers = abi.Metadata.from_address(options.metadata + abi.ctypes.sizeof(abi.Metadata))
    first = abi.TensorSource.from_address(options.tensors)
    change(options, layers, first)
    library, handle = abi.load(ensure_built().library), abi.Handle()
    library.open(options, handle)
    try:
        return int(library.describe(handle).vocabulary)
    finally:
        library.close(handle)


def test_a_true_description_is_served(folder: Path) -> None:
    assert opened(folder, lambda *_: None) == MODEL.vocabulary


def setting(of: int, **fields: object) -> Callable[..., None]:
    """A change of the options (0), of the metadata entry `block_count` (1) or of the first tensor (2)."""

    def change(*parts: object) -> None:
        for name, value in fields.items():
            setattr(parts[of], name, value)

    return change


def second_like_first(_: object, layers: abi.Metadata, __: object) -> None:
    first = abi.Metadata.from_address(abi.ctypes.addressof(layers) - abi.ctypes.sizeof(abi.Metadata))
    layers.key, layers.key_size = first.key, first.key_size


def other(first: abi.TensorSource) -> abi.TensorSource:
    return abi.TensorSource.from_address(abi.ctypes.addressof(first) + abi.ctypes.sizeof(abi.TensorSource))


def same_name(_: object, __: object, first: abi.TensorSource) -> None:
    first.name = other(first).name


def same_place(_: object, __: object, first: abi.TensorSource) -> None:
    other(first).offset = first.offset


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("without metadata", setting(0, metadata=None)),
        ("'general.architecture' is missing", setting(0, metadata_count=0)),
        ("'token_embd.weight' is missing", setting(0, tensor_count=0)),
        ("without bytes", setting(1, bytes=None)),
        ("a metadata key of 0 bytes", setting(1, key_size=0)),
        ("unknown value type 13", setting(1, type=13, item_type=13)),
        ("neither a value nor an array", setting(1, type=4)),
        ("neither a value nor an array", setting(1, count=2)),
        ("neither a value nor an array", setting(1, type=9, item_type=9)),
        ("claims 2 items", setting(1, type=9, count=2)),
        ("claims 9223372036854775808 items", setting(1, type=9, count=2**63)),
        ("claims 1 items", setting(1, byte_size=4)),
        ("bytes behind its value", setting(1, type=4, item_type=4)),
        ("is not an integer", setting(1, type=12, item_type=12)),
        ("'general.architecture' stands twice", second_like_first),
        ("stands twice", same_name),
        ("overlap", same_place),
        ("lie past the end", setting(2, offset=2**40)),
        ("no path", setting(2, path=None)),
        ("is not a regular file", setting(2, path=b"/")),
    ],
)
def test_a_false_one_is_refused_in_words(why: str, change: Callable[..., None], folder: Path) -> None:
    with pytest.raises(EngineError) as refused:
        opened(folder, change)
    assert why in f"{refused.value}"
