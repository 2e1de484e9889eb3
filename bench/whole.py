"""Whole numbers on a command line, held to their bounds before anything is measured.

Contract: a number that a measurement makes no sense of ends the command in argparse's own way (exit 2); it
would else be a traceback, or a verdict over nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return an argument's type: a whole number from `least`, to `most` where there is one."""
    bounds = f"from {least}" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
        if number is None or number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {bounds}")
        return number

    return read
