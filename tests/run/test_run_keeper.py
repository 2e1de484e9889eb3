"""An evaluator whose run was killed ends, even when its own clean-up hangs."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay.process import start, start_time_ticks
from assay.run.keeper import keeper
from toy_checkout import until

DEAF = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(other.pid, flush=True)
time.sleep(600)
"""

RUN = """
import subprocess, sys, time
from pathlib import Path
from assay.process import start
from assay.run.keeper import keeper

with open(sys.argv[2], "wb") as said:
    child = start([sys.executable, "-c", sys.argv[1]], env={}, cwd=Path("/"), stdout=said, death_signal=15)
print(child.pid, flush=True)
with keeper(child, 0.5):
    print("kept", flush=True)
    time.sleep(600)
"""


def test_an_evaluator_that_hangs_after_its_run_was_killed_is_killed_with_all_it_started(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    run = subprocess.Popen([sys.executable, "-c", RUN, DEAF, said], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    evaluator = int(run.stdout.readline())
    assert run.stdout.readline() == "kept\n"
    until(lambda: said.read_text().endswith("\n"))
    program = int(said.read_text())
    assert start_time_ticks(evaluator) is not None

    os.kill(run.pid, signal.SIGKILL)
    run.wait()

    until(lambda: start_time_ticks(evaluator) is None and start_time_ticks(program) is None)


def test_an_evaluator_that_its_run_ended_needs_no_keeper_any_more(tmp_path: Path) -> None:
    child = start([sys.executable, "-c", "import time; time.sleep(600)"], env={}, cwd=tmp_path)
    with keeper(child):
        until(lambda: any(is_keeper(path, child.pid) for path in Path("/proc").glob("[0-9]*")))
        child.kill()
        child.wait()
    assert not any(is_keeper(path, child.pid) for path in Path("/proc").glob("[0-9]*"))


def is_keeper(process: Path, child: int) -> bool:
    """Whether a process keeps watch over a child."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"assay.run.keeper" in words and str(child).encode() in words


def test_a_keeper_that_cannot_be_told_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    child = start([sys.executable, "-c", "pass"], env={}, cwd=tmp_path)
    with keeper(child):
        child.wait()
        monkeypatch.setattr(os, "write", full)
