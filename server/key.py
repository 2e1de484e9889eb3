"""The server's key: read from a private file, compared in constant time, shown to nobody.

The key is no dataclass field and has no repr of its own bytes, so no traceback, log line or debugger's
listing of values carries it by accident.
"""

from __future__ import annotations

import hmac
import os
import stat
from hashlib import sha256
from pathlib import Path

from server.errors import StartError

MAX_BYTES = 4096
ALLOWED_MODES = (0o400, 0o600)


class Key:
    """A secret that can only be compared."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        """Keep `secret`."""
        self._secret = secret

    def __repr__(self) -> str:
        return "Key(hidden)"

    def matches(self, authorization: bytes | None) -> bool:
        """Whether an `Authorization` header's value is `Bearer` and this key."""
        scheme, _, given = (authorization or b"").partition(b" ")
        # Digests are of one length, so not even the key's length shows in the time this takes.
        alike = hmac.compare_digest(sha256(given.strip()).digest(), sha256(self._secret).digest())
        return alike and scheme.lower() == b"bearer"


def read_key(path: Path) -> Key:
    """Return the key in a private file.

    Raises:
        StartError: exit code 2, unless the path is absolute and names a regular file (no link) of this
            user with mode 0400 or 0600 that holds 1 to 4096 printable bytes without spaces or newlines.
    """
    if not path.is_absolute():
        raise _unsafe(path, "the path is not absolute", f"--key-file {Path.cwd() / path}")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        make = f"(umask 077; printf %s \"$(openssl rand -hex 32)\" > '{path}')"
        raise _unsafe(path, "there is no such file", make) from error
    except OSError as error:
        linked = path.is_symlink()
        why = "it is a symbolic link" if linked else f"it cannot be opened: {error.strerror}"
        raise _unsafe(path, why, f"ls -l '{path}'") from error
    try:
        _check_private(path, os.fstat(descriptor))
        secret = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    rewrite = f"(umask 077; printf %s KEY > '{path}')"
    if not secret:
        raise _unsafe(path, "it is empty", rewrite)
    if len(secret) > MAX_BYTES:
        raise _unsafe(path, f"it is longer than {MAX_BYTES} bytes", rewrite)
    if b"\n" in secret or b"\r" in secret:
        raise _unsafe(path, "it holds a newline", f"{rewrite} (printf, not echo, writes none)")
    if not all(0x21 <= byte <= 0x7E for byte in secret):
        raise _unsafe(path, "it holds a space or a byte that is not printable", rewrite)
    return Key(secret)


def _check_private(path: Path, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(path, "it is not a regular file", f"ls -ld '{path}'")
    if status.st_uid != os.geteuid():
        raise _unsafe(path, f"it belongs to user {status.st_uid}, not to this one", f"ls -l '{path}'")
    if mode not in ALLOWED_MODES:
        raise _unsafe(path, f"its mode is {mode:04o}, not 0600 or 0400", f"chmod 600 '{path}'")


def _unsafe(path: Path, why: str, next_command: str) -> StartError:
    return StartError(f"the key file {path} cannot be used", why, next_command)
