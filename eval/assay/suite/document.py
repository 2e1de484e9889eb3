"""A suite's file as a document: one regular file of bounded size, and values that JSON can hold.

What the file says is saved with every run, hashed as canonical JSON, and handed to programs: so a date, a
number that is none, or a key that only looks like another is refused here, before any meaning is read.
"""

from __future__ import annotations

import json
import math
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import ConfigurationError
from assay.paths import relative

MAXIMUM_BYTES = 1 << 20
MAXIMUM_DEPTH = 32
LARGEST = 2**63 - 1
TOLD = 20
BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Document:
    """A suite's file.

    Attributes:
        path: Where it is.
        text: Its text as it stands.
        value: What it says.
    """

    path: Path
    text: str
    value: Mapping[str, Any]


def read_document(path: Path) -> Document:
    """The document in a file: JSON where its name ends so, else TOML.

    Raises:
        ConfigurationError: it cannot be read, is too large, is not of its form, or says
            what JSON cannot hold.
    """
    text = read_text(path)
    try:
        value = _object(json.loads(text)) if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        form = "JSON" if path.suffix == ".json" else "TOML"
        raise refused(path, f"it is not valid {form}: {error}", "mend that line") from error
    except (ValueError, RecursionError) as error:
        why = "it is no table, or holds a number that is too long, or too many brackets in each other"
        raise refused(path, why) from error
    if faults := list(unfit(value)):
        raise refused(path, faults)
    return Document(path, text, value)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def read_text(path: Path) -> str:
    """The text of a regular file; ConfigurationError when there is none, or it is too large or no UTF-8."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise refused(path, "it is a directory", "name the file in it")
        if not stat.S_ISREG(found.st_mode):
            raise refused(path, "it is not a regular file", "name a file that holds the suite")
        with path.open("rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise refused(path, f"{error.strerror}", "give the path of a suite's TOML file") from error
    except ValueError as error:  # a NUL in the name
        raise refused(path, str(error), "give the path of a suite's TOML file") from error
    if len(data) > MAXIMUM_BYTES:
        raise refused(path, f"it is longer than {MAXIMUM_BYTES:,} bytes", "a suite names data and holds none")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(path, f"it is not UTF-8: {error.reason} at byte {error.start}") from error


def refused(path: Path, why: str | Sequence[str], next: str = "") -> ConfigurationError:
    """The error for a suite's file that cannot be used; of several reasons the first ones are told."""
    if not isinstance(why, str):
        left = len(why) - TOLD
        why = "; ".join([*why[:TOLD], *([f"and {left} more"] if left > 0 else [])])
    name = relative(path)
    return ConfigurationError(f"the suite {name} cannot be used", why, next or f"edit {name}")


def unfit(value: Any, where: str = "", depth: int = 0) -> Iterator[str]:
    """What JSON cannot hold, or nobody can read, each by its place."""
    if depth > MAXIMUM_DEPTH:
        yield f"{where.partition('.')[0]}: more than {MAXIMUM_DEPTH} tables in each other"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not (key.isascii() and key.isprintable()) or not key:
                yield f"{where or 'the file'}: the key {key!a} is not of printable ASCII characters"
            else:
                yield from unfit(item, inside(where, key), depth + 1)
    elif isinstance(value, str):
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            yield f"{where}: it holds a NUL, or half a character"
    elif isinstance(value, Sequence):
        for number, item in enumerate(value, 1):
            yield from unfit(item, f"{where}[{number}]", depth + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield f"{where}: {value} is no number"
    elif isinstance(value, int):
        if abs(value) > LARGEST:
            yield f"{where}: the number has more than 64 bits"
    elif value is not None:
        yield f"{where}: a {type(value).__name__} is neither text nor number, truth, list or table"


def inside(where: str, key: str) -> str:
    """The dotted name of a key in a table."""
    spelt = key if BARE.fullmatch(key) else f'"{key}"'
    return f"{where}.{spelt}" if where else spelt
