"""What a person sees while Assay works: steps with their seconds, on stderr.

Results go to stdout and diagnostics to stderr, so that a pipe gets only results. This module needs nothing
but the standard library, since the bootstrap speaks through it before any package is installed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from assay.errors import AssayError


class Diagnostics:
    """Standard error as a file: a terminal or pipe that has gone away ends no work.

    It stays the stream that it was when this was made, also where a live display puts itself in between.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr

    def write(self, text: str) -> int:
        """Write the text, if anybody is there to read it; returns its length."""
        try:
            self._stream.write(text)
        except OSError:
            self._forget()
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody is there."""
        try:
            self._stream.flush()
        except OSError:
            self._forget()

    def _forget(self) -> None:
        # What is still buffered would be tried again when the interpreter ends, and cost the exit code.
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def isatty(self) -> bool:
        """Whether a terminal is there."""
        return self._stream.isatty()


def say(text: str) -> None:
    """Print one line of diagnostics."""
    diagnostics = Diagnostics()
    diagnostics.write(printable(text) + "\n")
    diagnostics.flush()


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
