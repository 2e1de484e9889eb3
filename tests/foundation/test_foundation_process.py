"""Children: ended with all they started, told to die with their parent, never hearing the terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import CancelledError, RunError
from assay.process import descendants, end, finish, start, start_time_ticks

WAIT_S = 60.0
FAMILY = """
import signal, subprocess, sys
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.01)


def family(tmp_path: Path, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """A child that has started a child of its own, in a session of its own."""
    child = start(
        [sys.executable, "-c", FAMILY, *words], env=dict(os.environ), cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    return child, int(child.stdout.readline())


@pytest.mark.parametrize(("words", "grace_s"), [((), 60.0), (("deaf",), 0.2)])
def test_ending_a_child_ends_what_it_started_in_other_sessions_too(
    tmp_path: Path, words: tuple[str, ...], grace_s: float
) -> None:
    child, grandchild = family(tmp_path, *words)
    assert (grandchild, start_time_ticks(grandchild)) in descendants(child.pid)
    assert os.getpgid(grandchild) != child.pid
    code = end(child, signal.SIGTERM, grace_s)
    assert code == (-signal.SIGKILL if words else -signal.SIGTERM)
    until(lambda: start_time_ticks(grandchild) is None)
    assert end(child) == code, "a second time nothing happens"


def test_a_child_is_in_a_group_of_its_own_and_reads_nothing(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getpgid(0) == os.getpid(), repr(sys.stdin.read()))"
    done = finish([sys.executable, "-c", code], env=dict(os.environ), cwd=tmp_path, timeout_s=WAIT_S)
    assert done.stdout == b"True ''\n"


def test_a_child_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time, pathlib; from assay.process import start\n"
        "child = start(['sleep', '600'], env=dict(os.environ), cwd=pathlib.Path('/'))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert start_time_ticks(pid) is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: start_time_ticks(pid) is None)


def test_a_child_has_the_environment_it_was_given_and_no_more(tmp_path: Path) -> None:
    done = finish(["/usr/bin/env"], env={"ONLY": "this"}, cwd=tmp_path, timeout_s=WAIT_S)
    assert done.stdout == b"ONLY=this\n"
    assert done.returncode == 0


def test_a_child_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo out; echo err >&2; exit 7"]
    done = finish(words, env=dict(os.environ), cwd=tmp_path, timeout_s=WAIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


def test_a_child_that_says_more_than_a_pipe_holds_comes_to_its_end(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "print('x' * 1_000_000)"]
    done = finish(words, env=dict(os.environ), cwd=tmp_path, timeout_s=WAIT_S)
    assert len(done.stdout) == 1_000_001


def test_a_child_that_takes_too_long_is_ended_and_named(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    with pytest.raises(RunError, match="sleep did not end within 0 s"):
        finish(["sleep", "600"], env=dict(os.environ), cwd=tmp_path, timeout_s=0.2)
    assert descendants(os.getpid()) == before


def test_a_child_that_is_not_wanted_any_more_is_ended(tmp_path: Path) -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    before = descendants(os.getpid())
    with pytest.raises(CancelledError):
        finish(["sleep", "600"], env=dict(os.environ), cwd=tmp_path, timeout_s=WAIT_S, cancelled=cancelled)
    assert descendants(os.getpid()) == before


def test_a_program_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start([tmp_path / "absent"], env={}, cwd=tmp_path)


def test_a_start_time_names_a_process_for_good(tmp_path: Path) -> None:
    child = start(["sleep", "600"], env=dict(os.environ), cwd=tmp_path)
    ticks = start_time_ticks(child.pid)
    assert ticks is not None
    assert ticks >= (start_time_ticks(os.getpid()) or 0)
    child.kill()
    until(lambda: start_time_ticks(child.pid) is None)
    assert child.wait() == -signal.SIGKILL
    assert start_time_ticks(2**22 + 1) is None


def test_a_process_whose_first_thread_has_ended_lives_as_long_as_another(tmp_path: Path) -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: time.sleep(600)).start(); print(flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = start([sys.executable, "-c", code], env=dict(os.environ), cwd=tmp_path, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    until(lambda: ") Z " in Path(f"/proc/{child.pid}/stat").read_text())
    assert (child.pid, start_time_ticks(child.pid)) in descendants(os.getpid())
    assert end(child) == -signal.SIGTERM
    assert start_time_ticks(child.pid) is None
