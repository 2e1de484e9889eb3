"""A program of an evaluator's environment, with the network taken away: `python -P offline.py PROGRAM ARG …`.

PROGRAM is a file, or a module's name. Nothing can be looked up, connected to, listened on or sent to but
sockets of this machine's file system: what scores an answer that was given long ago has nobody to ask, and
a scorer that tries is one whose score the record alone does not decide.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

REFUSED = frozenset(
    {
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.getnameinfo",
    }
)
ADDRESSED = frozenset({"socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto"})


class NetworkError(OSError):
    """Something would have reached a network."""


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: raises NetworkError for a name to be looked up and for an address that is no path."""
    wanted = None
    if event in REFUSED:
        wanted = arguments[0]
    elif event in ADDRESSED and isinstance(arguments[1], tuple):
        wanted = arguments[1][0]
    if wanted is not None:
        raise NetworkError(f"offline: it would reach {wanted!s}")


def main(program: str) -> None:
    """Run the program as if it had been started by itself."""
    sys.argv = sys.argv[1:]
    sys.addaudithook(hook)
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
