"""The endpoint's key: read from a private file, handed to children in their environment, never written.

The rule is strict because a key that leaks once is lost: an absolute path to a regular file (no link) of
this user, mode 0400 or 0600, holding 1 to 4,096 printable characters and nothing else. Which file: the
option's, else the first of `KEY_FILE_VARIABLES` that is set. The one that is named first is used or refused,
and never passed over for the next.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from assay.errors import ConfigurationError

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

    def refuse(why: str, next: str) -> ConfigurationError:
        return ConfigurationError(f"the key file {path} cannot be used", why, next)

    if not path.is_absolute():
        raise refuse("the path is not absolute", f"write {path.absolute()}")
    try:
        found = path.lstat()
    except OSError as error:
        raise refuse(
            f"{error.strerror}", f"put the key there: (umask 077; printf %s KEY > {path})"
        ) from error
    if stat.S_ISLNK(found.st_mode):
        raise refuse("it is a symbolic link", f"name the file itself: {path.resolve()}")
    if not stat.S_ISREG(found.st_mode):
        raise refuse("it is not a regular file", "name a file that holds the key and nothing else")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refuse(f"{error.strerror}", "name a file of your own that you may read") from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise refuse("it is not a regular file", "name a file that holds the key and nothing else")
        if found.st_uid != os.geteuid():
            raise refuse("it belongs to another user", "copy it to a file of your own")
        mode = stat.S_IMODE(found.st_mode)
        if mode not in (0o400, 0o600):
            raise refuse(f"its mode is {mode:04o}; others could read or change it", f"chmod 600 {path}")
        data = file.read(MAXIMUM_BYTES + 1)
    if not data:
        raise refuse("it is empty", f"put the key there: printf %s KEY > {path}")
    if len(data) > MAXIMUM_BYTES:
        raise refuse(
            f"it is longer than {MAXIMUM_BYTES} bytes", "name a file that holds the key and nothing else"
        )
    if b"\n" in data or b"\r" in data:
        raise refuse("it holds a line end", f"write it without one: printf %s KEY > {path}")
    if not all(0x21 <= byte <= 0x7E for byte in data):
        raise refuse("it holds characters that are not printable ASCII", f"printf %s KEY > {path}")
    return Key(data.decode("ascii"))


def make_key_file(path: Path) -> Key:
    """Write a fresh random key (mode 0600) for a server that Assay starts itself, and return it."""
    value = f"assay-{secrets.token_urlsafe(24)}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(value)
    return Key(value)
