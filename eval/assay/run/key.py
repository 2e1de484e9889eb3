"""The endpoint's key: read from a private file, handed to children in their environment, never written.

The rule is strict because a key that leaks once is lost: an absolute path to a regular file (no link) of
this user, mode 0400 or 0600, holding 1 to 4,096 printable characters and nothing else. Which file: the
option's, else the first of `KEY_FILE_VARIABLES` that is set. The one that is named first is used or refused,
and never passed over for the next.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from assay.private import read_private, refused

MAXIMUM_BYTES = 4096
KEY_FILE_VARIABLES = ("QWEN_API_KEY_FILE", "ASSAY_API_KEY_FILE")


class Key:
    """A secret that shows itself only when asked by name (`reveal`), never in a log or a traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        """A placeholder."""
        return "Key(***)"

    def reveal(self) -> str:
        """The secret itself."""
        return self._value


def find_key(given: Path | None, variables: Mapping[str, str]) -> Key | None:
    """The endpoint's key, from the file that the option or a variable names; None when none does.

    Args:
        given: The option's file.
        variables: The environment.

    Raises:
        ConfigurationError: the file cannot be used (see `read_key`).
    """
    named = given or next((Path(variables[name]) for name in KEY_FILE_VARIABLES if variables.get(name)), None)
    return None if named is None else read_key(named)


def read_key(path: Path) -> Key:
    """Read a key file.

    Args:
        path: The file.

    Raises:
        ConfigurationError: the path is not absolute, or the file is missing, a link, not a regular file,
            another user's, readable by others, empty, too long, or holds anything but printable characters.
    """
    put = f"(umask 077; printf %s KEY > {path})"
    data = read_private(path, "key file", MAXIMUM_BYTES, put)
    if b"\n" in data or b"\r" in data:
        raise refused(path, "key file", "it holds a line end", f"write it without one: {put}")
    if not all(0x21 <= byte <= 0x7E for byte in data):
        raise refused(path, "key file", "it holds characters that are not printable ASCII", put)
    return Key(data.decode("ascii"))


def make_key_file(path: Path) -> Key:
    """Write a fresh random key (mode 0600) for a server that Assay starts itself, and return it."""
    value = f"assay-{secrets.token_urlsafe(24)}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(value)
    return Key(value)
