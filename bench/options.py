"""What the commands of this room take alike: where their result goes, and whole numbers within bounds.

Contract: a number that a measurement makes no sense of ends the command in argparse's own way (exit 2); it
would else be a traceback, or a verdict over nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def bench_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of `python -m bench.NAME`, with where its result goes."""
    out = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=description)
    out.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    out.add_argument(
        "--write", action="store_true", help="replace this command's section of bench/RESULTS.md"
    )
    return out


def add_busy(out: argparse.ArgumentParser) -> None:
    """Add what lets a machine be measured that does other work."""
    out.add_argument("--busy", action="store_true", help="measure although the machine is busy")


def add_model(out: argparse.ArgumentParser, pinned: str) -> None:
    """Add which model is measured."""
    out.add_argument("--model", type=Path, help=f"a GGUF file (default: {pinned}, verified)")


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return an argument's type: a whole number from `least`, to `most` where there is one."""
    bounds = f"from {least}" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
        if number is None or number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {bounds}")
        return number

    return read
