"""Secrets, taken out of everything that is written or shown, where it is written.

A secret can come back in any text: a server repeats a header, a library prints its configuration when it
fails. So whatever goes into events, logs, state and the record of launches passes through here, in each
spelling in which a secret travels: as it is, quoted for an address, escaped in JSON, and in base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from assay.run.identity import REDACTED
from assay.run.key import Key

# A shorter one stands anywhere by chance: taking it out would hide the text and protect nothing.
SHORTEST = 4


class Secrets:
    """What must not be written anywhere."""

    def __init__(self) -> None:
        self._spellings: list[str] = []

    def add(self, key: Key | None) -> None:
        """Take note of a secret; what is shorter than `SHORTEST` characters is none."""
        if key is None or len(key.reveal()) < SHORTEST:
            return
        plain = key.reveal()
        known = {*self._spellings, plain, quote(plain, safe=""), json.dumps(plain)[1:-1]}
        known.add(base64.b64encode(plain.encode("utf-8")).decode("ascii").rstrip("="))
        # The longest first: one secret may be the beginning of another.
        self._spellings = sorted(known, key=lambda each: (-len(each), each))

    def text(self, text: str) -> str:
        """The text without them."""
        for spelling in self._spellings:
            text = text.replace(spelling, REDACTED)
        return text

    def data(self, data: bytes) -> bytes:
        """The bytes without them."""
        for spelling in self._spellings:
            data = data.replace(spelling.encode("utf-8"), REDACTED.encode("ascii"))
        return data

    def value(self, value: Any) -> Any:
        """A JSON value, names and texts without them, that can be written as UTF-8."""
        if isinstance(value, str):
            return self.text(value.encode("utf-8", "replace").decode("utf-8"))
        if isinstance(value, Mapping):
            return {self.value(str(name)): self.value(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


def password(value: str) -> Key | None:
    """The password in an address, as a proxy's has one; None where a value is none or has none."""
    try:
        found = urlsplit(value).password if "://" in value and "@" in value else None
    except ValueError:
        return None
    return Key(unquote(found)) if found else None
