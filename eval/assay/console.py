"""What a person sees while Assay works: steps with their seconds, on stderr.

Results go to stdout and diagnostics to stderr, so that a pipe gets only results. This module needs nothing
but the standard library, since the bootstrap speaks through it before any package is installed.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from assay.errors import AssayError


def say(text: str) -> None:
    """Print one line of diagnostics; a terminal or pipe that has gone away ends no work."""
    with contextlib.suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""The text with every character that is no line end and cannot be seen written as `\x1b`.

    What a server or a stranger's record says is shown, but moves no cursor and sets no title.
    """
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


@contextmanager
def step(text: str) -> Iterator[None]:
    """Say what is being done, and how many seconds it took once it is done.

    Args:
        text: What is done, e.g. "installing 116 packages".
    """
    begin = time.monotonic()
    say(f"assay: {text} ...")
    yield
    say(f"assay: {text}: {time.monotonic() - begin:.1f} s")


def complain(error: AssayError) -> None:
    """Print an error as its three parts: what, why, next."""
    say(f"assay: error: {error.what}")
    if error.why:
        say(f"  why:  {error.why}")
    if error.next:
        say(f"  next: {error.next}")
