"""What a command took is its own, however large the process is that asks for it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bench.launched import launched

LARGE = 300_000_000


def taken(tmp_path: Path, code: str) -> tuple[int, float, int, bytes]:
    with (tmp_path / "said").open("w+b") as said:
        found = launched([sys.executable, "-S", "-c", code], said)
        said.seek(0)
        return found.code, found.cpu_s, found.peak_bytes, said.read()


def test_a_command_s_memory_is_not_that_of_who_starts_it(tmp_path: Path) -> None:
    room = np.ones(LARGE, np.uint8)
    code, cpu_s, peak_bytes, said = taken(tmp_path, "print('here'); raise SystemExit(7)")
    assert (code, said, int(room[-1])) == (7, b"here\n", 1)
    assert 0 < cpu_s < 60
    assert 4_000_000 < peak_bytes < LARGE / 4


def test_the_largest_of_a_command_s_processes_is_what_it_held(tmp_path: Path) -> None:
    inner = f"room = b'1' * {LARGE}"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {inner!r}], check=True)"
    assert taken(tmp_path, code)[2] > LARGE
    assert taken(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")[0] == -15
    assert taken(tmp_path, "import subprocess")[2] < LARGE / 4
