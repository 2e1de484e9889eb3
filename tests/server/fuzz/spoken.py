"""A whole small model with a byte-level tokenizer and a chat template, to be served and to be spoilt."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from tests.server.engine.tiny import TinyModel
from tests.server.fuzz.header import ARRAY, BOOL, I32, STRING, U32, Entry, Header, array, parse, text
from tests.server.http.toy import VOCABULARY, metadata

MODEL = TinyModel(layers=1, heads=1, head_dim=32, ffn=32, vocabulary=VOCABULARY, context=256)


def entry(key: str, value: object) -> Entry:
    """Encode one metadata value of Python."""
    name = key.encode()
    if isinstance(value, bool):
        return Entry(name, BOOL, bytes([value]))
    if isinstance(value, int):
        return Entry(name, U32, struct.pack("<I", value))
    if isinstance(value, str | bytes):
        return Entry(name, STRING, text(value))
    assert isinstance(value, list)
    if value and isinstance(value[0], int):
        return Entry(name, ARRAY, array(I32, [struct.pack("<i", item) for item in value]))
    return Entry(name, ARRAY, array(STRING, [text(item) for item in value]))


def spoken() -> Header:
    """The toy's tokenizer and template around a real, random model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        MODEL.write(path)
        header = parse(path.read_bytes())
    return header.with_entries(
        *(entry(key, value) for key, value in metadata().items() if key.startswith("tokenizer."))
    )
