"""The command killed at one of its own writes: `kill_at.py WHERE WORDS…`.

What changes a directory or a file on the disk is counted. Where WHERE is a number, the process kills itself
in place of the write of that number; where it is a word, after the first line that holds it. Its children are
left to whoever looks after them. Where it ends before, the last line of standard error says how many writes
there were.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any

from assay.cli import main

PATHS = ("replace", "rename", "unlink", "remove", "mkdir", "rmdir", "truncate", "link", "symlink")

where = sys.argv[1]
last = int(where) if where.isdecimal() else 0
word = b"" if where.isdecimal() else where.encode()
lock = threading.Lock()
count = 0


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def counted() -> None:
    global count
    with lock:
        count += 1
        if count == last:
            killed()


def of_path(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        counted()
        return real(*arguments, **named)

    return call


def of_handle(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(handle: int, *arguments: Any) -> Any:
        # A terminal, a pipe and a socket are on no disk.
        if handle <= 2 or not stat.S_ISREG(os.fstat(handle).st_mode):
            return real(handle, *arguments)
        counted()
        done = real(handle, *arguments)
        if word and arguments and isinstance(arguments[0], bytes) and word in arguments[0]:
            killed()
        return done

    return call


for name in PATHS:
    setattr(os, name, of_path(getattr(os, name)))
os.write = of_handle(os.write)
os.fsync = of_handle(os.fsync)
os.ftruncate = of_handle(os.ftruncate)
code = main(sys.argv[2:])
print(f"{count} writes", file=sys.stderr)
sys.exit(code)
