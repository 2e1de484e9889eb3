"""A model's metadata as Python has it, made of the entries that the engine's library hands out.

Contract: the library has checked that an entry is whole; what it says is data from anywhere still.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from server import abi
from server.build import EngineError

_STRING = 8
_ARRAY = 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def decoded(entries: Iterable[tuple[bytes, abi.Metadata, bytes]]) -> dict[str, object]:
    """Return the values by key, of entries that are a key, a description and bytes each.

    Raises:
        EngineError: a text is not UTF-8; names the key.
    """
    return {
        _text(key, "a metadata key"): _value(_text(key, "a metadata key"), entry, data)
        for key, entry, data in entries
    }


def _value(key: str, entry: abi.Metadata, data: bytes) -> object:
    if entry.item_type == _STRING:
        texts = _strings(key, data, entry.count)
        return texts if entry.type == _ARRAY else texts[0]
    values = struct.unpack(f"<{entry.count}{_NUMBERS[entry.item_type]}", data)
    return list(values) if entry.type == _ARRAY else values[0]


def _strings(key: str, data: bytes, count: int) -> list[str]:
    texts, at = [], 0
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", data, at)
        at += 8 + length
        texts.append(_text(data[at - length : at], key))
    return texts


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise EngineError(f"the model's {where} holds text that is not UTF-8: {error}") from error
