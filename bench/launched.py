"""A command as it is measured from outside: its exit code, its processors' time, the most memory it held.

Contract: memory is the most that any one of its processes held. Linux counts what a process held before it
became another program as that program's, and a process that is made shares its maker's memory until then, so
a command that a large process starts seems as large. A small process stands in between (sides/launcher.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LAUNCHER = Path(__file__).parent / "sides" / "launcher.py"


@dataclass(frozen=True)
class Taken:
    """What a command took.

    Attributes:
        code: It ended with; negative the signal that ended it.
        cpu_s: Of all its processes that have ended.
        peak_bytes: Resident, of the largest of them.
    """

    code: int
    cpu_s: float
    peak_bytes: int


def launched(words: Sequence[str], said: IO[bytes]) -> Taken:
    """Run a command to its end, without input.

    Args:
        words: The command.
        said: Takes both of its outputs.
    """
    with tempfile.TemporaryDirectory(prefix="bench-launched-") as folder:
        result = Path(folder) / "taken.json"
        command = [sys.executable, "-S", "-E", str(LAUNCHER), str(result), *words]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=True)
        return Taken(**json.loads(result.read_bytes()))
