"""Reading a private file: one that only this user can read, and that no other can have put in its place.

The rule is strict because a secret that leaks once is lost: an absolute path to a regular file (no link) of
this user, mode 0400 or 0600, of a bounded size. What is in it is judged by who asks.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from assay.errors import ConfigurationError


def read_private(path: Path, what: str, maximum_bytes: int, put: str) -> bytes:
    """The bytes of a private file.

    Args:
        path: The file.
        what: What it is for the user, e.g. "key file".
        maximum_bytes: The most it may hold.
        put: The command that writes it where it belongs.

    Raises:
        ConfigurationError: the path is not absolute, or the file is missing, a link, not a regular file,
            another user's, readable by others, empty or too long.
    """

    def refuse(why: str, next: str) -> ConfigurationError:
        return refused(path, what, why, next)

    if not path.is_absolute():
        raise refuse("the path is not absolute", f"write {path.absolute()}")
    try:
        found = path.lstat()
    except OSError as error:
        raise refuse(f"{error.strerror}", f"put it there: {put}") from error
    if stat.S_ISLNK(found.st_mode):
        raise refuse("it is a symbolic link", f"name the file itself: {path.resolve()}")
    alone = "name a file that holds the key and nothing else"
    if not stat.S_ISREG(found.st_mode):
        raise refuse("it is not a regular file", alone)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise refuse(f"{error.strerror}", "name a file of your own that you may read") from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise refuse("it is not a regular file", alone)
        if found.st_uid != os.geteuid():
            raise refuse("it belongs to another user", "copy it to a file of your own")
        mode = stat.S_IMODE(found.st_mode)
        if mode not in (0o400, 0o600):
            raise refuse(f"its mode is {mode:04o}; others could read or change it", f"chmod 600 {path}")
        data = file.read(maximum_bytes + 1)
    if not data:
        raise refuse("it is empty", f"put it there: {put}")
    if len(data) > maximum_bytes:
        raise refuse(f"it is longer than {maximum_bytes} bytes", alone)
    return data


def refused(path: Path, what: str, why: str, next: str) -> ConfigurationError:
    """The error that says why a private file cannot be used."""
    return ConfigurationError(f"the {what} {path} cannot be used", why, next)
