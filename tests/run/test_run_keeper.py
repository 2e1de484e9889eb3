"""A kept program ends with all it started, however it ends and whatever becomes of its run."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from assay.process import descendants, start_time_ticks
from assay.run.keeper import is_keeper
from assay.run.kept import end, kept
from toy_checkout import until

# Starts a program in a session of its own, and says its own id and that one's.
STARTING = """
import os, signal, subprocess, sys, time
def start():
    code = "import time; time.sleep(600)"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid
BEFORE
print(os.getpid(), start(), flush=True)
AFTER
"""
SLEEP = "time.sleep(600)"


def program(after: str = SLEEP, before: str = "", code: str = STARTING) -> str:
    return code.replace("BEFORE", before).replace("AFTER", after)


QUICK = program()
DEAF = program(before="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
# Says so, and ends by a signal of its own a second later: what it is told meanwhile is seen too.
TOLD = "(print('told', flush=True), signal.setitimer(signal.ITIMER_REAL, 1.0))"
# Its last deed is to start another program, which it says.
BUSY = program(before="signal.signal(signal.SIGTERM, lambda *_: (print(start(), flush=True), os._exit(0)))")
# What it started has left it, so that only who adopts orphans can find that.
LEFT = """
import os, sys, time
code = (
    "import os, sys, time; os.setsid(); other = os.fork()\\n"
    "if other: print(sys.argv[1], other, flush=True); os._exit(0)\\n"
    "time.sleep(600)"
)
os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-c", code, str(os.getpid())], {})
AFTER
"""

RUN = """
import signal, subprocess, sys, time
from pathlib import Path
from assay.run.kept import kept

words = [sys.executable, "-c", *sys.argv[3:]]
with open(sys.argv[2], "wb") as said, kept(
    words, env={"PYTHONPATH": sys.argv[1]}, cwd=Path("/"), stdout=said, stderr=2, grace_s=float(GRACE)
) as keeper:
    print(keeper.pid, flush=True)
    time.sleep(600)
"""


class Run:
    """A run in a process of its own, that keeps a program with something that it started."""

    def __init__(self, said: Path, *words: str | Path, grace_s: float = 60.0) -> None:
        said.touch()
        code = RUN.replace("GRACE", str(grace_s))
        path = os.environ.get("PYTHONPATH") or os.pathsep.join(sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, path, said, *words], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.keeper = int(self.process.stdout.readline())
        until(lambda: said.read_text().endswith("\n"))
        self.program, self.started = map(int, said.read_text().split())
        assert start_time_ticks(self.started) is not None

    def kill(self) -> None:
        """As kill -9 does."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def gone(*pids: int) -> bool:
    return all(start_time_ticks(pid) is None for pid in pids)


@pytest.mark.parametrize(
    ("code", "grace_s"), [(QUICK, 60.0), (DEAF, 0.5), (BUSY, 60.0), (program(code=LEFT), 60.0)]
)
def test_a_program_ends_with_all_it_started_when_its_run_is_killed(
    tmp_path: Path, code: str, grace_s: float
) -> None:
    run = Run(tmp_path / "said", code, grace_s=grace_s)
    run.kill()
    until(lambda: gone(run.program, run.started, run.keeper))
    *_, last = (tmp_path / "said").read_text().split()
    assert gone(int(last)), "also what it started when it was told to end"


def test_a_program_that_is_dead_before_its_keeper_looks_leaves_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path / "said", QUICK)
    os.kill(run.keeper, signal.SIGSTOP)
    run.kill()
    until(lambda: gone(run.program))
    assert not gone(run.started)
    os.kill(run.keeper, signal.SIGCONT)
    until(lambda: gone(run.started, run.keeper))


def test_a_program_is_told_once_that_its_run_is_dead(tmp_path: Path) -> None:
    """A second signal would break off the clean-up of Verifiers' evaluator."""
    said = tmp_path / "said"
    run = Run(said, program(before=f"signal.signal(signal.SIGTERM, lambda *_: {TOLD})"))
    run.kill()
    until(lambda: gone(run.program, run.keeper))
    assert said.read_text().split()[2:] == ["told"]


def test_a_program_does_not_outlive_its_keeper(tmp_path: Path) -> None:
    run = Run(tmp_path / "said", DEAF)
    os.kill(run.keeper, signal.SIGKILL)
    until(lambda: gone(run.program))
    run.kill()
    os.kill(run.started, signal.SIGKILL)


def test_a_run_that_is_killed_below_another_leaves_its_program_to_the_keeper_of_that(tmp_path: Path) -> None:
    """What it started itself is killed at once; what it kept has the time for its own clean-up."""
    begun, go, cleaned = tmp_path / "begun", tmp_path / "go", tmp_path / "cleaned"
    cleaning = f"""
def clean(*_):
    from pathlib import Path
    Path({str(begun)!r}).touch()
    while not Path({str(go)!r}).exists(): time.sleep(0.01)
    Path({str(cleaned)!r}).touch()
    os._exit(0)
signal.signal(signal.SIGTERM, clean)
"""
    inner, said = program(before=cleaning), tmp_path / "inner"
    starting = "print(os.getpid(), start(), flush=True)\n" + RUN.replace("GRACE", "60")
    outer = program("").replace("print(os.getpid(), start(), flush=True)", starting)
    run = Run(tmp_path / "said", outer, os.pathsep.join(sys.path), said, inner)
    until(lambda: said.exists() and said.read_text().endswith("\n"))
    kept_program, started = map(int, said.read_text().split())
    os.kill(run.program, signal.SIGKILL)
    until(lambda: begun.exists() and gone(run.program, run.started))
    assert not gone(kept_program)
    assert not gone(run.keeper)
    go.touch()
    until(lambda: gone(kept_program, started, run.keeper))
    assert cleaned.exists()
    run.kill()


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("pass", 0),
        ("sys.exit(7)", 7),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)", -signal.SIGINT),
    ],
)
@pytest.mark.parametrize("starting", [STARTING, LEFT])
def test_a_keeper_ends_as_its_program_did_and_then_nothing_is_left(
    tmp_path: Path, starting: str, ending: str, code: int
) -> None:
    said = tmp_path / "said"
    words = [sys.executable, "-c", "import signal\n" + program(ending, code=starting)]
    with (
        said.open("wb") as stream,
        kept(words, env={}, cwd=tmp_path, stdout=stream) as child,
    ):
        assert child.wait() == code
        left = [int(word) for word in said.read_text().split()]
        assert len(left) == 2
        assert gone(*left)


def test_a_program_has_what_it_was_given_and_nothing_of_its_keeper(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "print(dict(os.environ, LC_CTYPE='') == {'ONLY': 'this', 'LC_CTYPE': ''}, os.getcwd())\n"
        "print(os.getpid() == os.getpgid(0) == os.getsid(0), os.getppid())\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), sorted(os.listdir('/proc/self/fd'))[:-1])"
    )
    handle = os.dup(0)
    os.set_inheritable(handle, True)
    words = [sys.executable, "-c", code]
    with kept(words, env={"ONLY": "this"}, cwd=tmp_path, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        told = child.stdout.read().decode().splitlines()
        child.stdout.close()
    os.close(handle)
    assert told == [f"True {tmp_path}", f"True {child.pid}", "set() ['0', '1', '2']"]


def test_a_keeper_has_neither_the_environment_nor_the_output_of_its_program(tmp_path: Path) -> None:
    code = "import os, time; os.close(1); time.sleep(600)"
    with kept(
        [sys.executable, "-c", code],
        env={"KEY": "canary"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        until(lambda: is_keeper(child.pid))
        assert child.stdout is not None
        assert child.stdout.read() == b""
        child.stdout.close()
        keeper = Path(f"/proc/{child.pid}")
        assert b"canary" not in (keeper / "environ").read_bytes() + (keeper / "cmdline").read_bytes()
        assert (keeper / "cwd").readlink() == Path("/")
        end(child, signal.SIGKILL)


COUNTING = """
import os, signal, sys, time
heard = []
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, lambda number, frame: heard.append(number))
other = os.fork()
print("ready" if other else "beside", flush=True)
while True:
    time.sleep(0.01)
    if heard:
        print("program" if other else "beside", heard.pop(), flush=True)
"""


@pytest.mark.parametrize("how", [os.kill, os.killpg])
def test_a_signal_is_handed_on_once_to_the_program_or_to_its_group(
    tmp_path: Path, how: Callable[[int, int], None]
) -> None:
    said = tmp_path / "said"

    def lines() -> list[str]:
        return sorted(said.read_text().splitlines())

    def has(count: int) -> None:
        until(lambda: len(lines()) >= count)

    with (
        said.open("wb") as stream,
        kept([sys.executable, "-c", COUNTING], env={}, cwd=tmp_path, stdout=stream) as child,
    ):
        expected = ["beside", "ready"]
        has(2)
        for number, heard in (
            (signal.SIGINT, ["program 2"]),
            (signal.SIGHUP, ["program 1"]),
            (signal.SIGTERM, ["beside 15", "program 15"]),
        ):
            how(child.pid, number)
            expected = sorted([*expected, *heard])
            has(len(expected))
            assert lines() == expected
        assert end(child, signal.SIGKILL) == -signal.SIGKILL
    assert lines() == expected


def test_a_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("wb") as stream, ExitStack() as stack:
        begun = kept([sys.executable, "-c", COUNTING], env={}, cwd=tmp_path, stdout=stream)
        children: list[subprocess.Popen[bytes]] = []
        thread = threading.Thread(target=lambda: children.append(stack.enter_context(begun)))
        thread.start()
        thread.join()
        until(lambda: said.read_text().count("\n") == 2)
        children[0].send_signal(signal.SIGINT)
        until(lambda: "program 2" in said.read_text())
        assert end(children[0], signal.SIGKILL) == -signal.SIGKILL


def test_a_signal_that_comes_before_its_keeper_listens_is_not_lost(tmp_path: Path) -> None:
    for _ in range(5):
        with kept(["sleep", "600"], env=dict(os.environ), cwd=tmp_path) as child:
            child.send_signal(signal.SIGINT)
            assert child.wait() == -signal.SIGINT


@pytest.mark.parametrize(("code", "status"), [(QUICK, -signal.SIGTERM), (DEAF, -signal.SIGKILL)])
def test_leaving_the_block_ends_the_program_politely(tmp_path: Path, code: str, status: int) -> None:
    said = tmp_path / "said"
    words = [sys.executable, "-c", code]
    with (
        said.open("wb") as stream,
        kept(words, env={}, cwd=tmp_path, stdout=stream, grace_s=0.5 if code == DEAF else 60.0) as child,
    ):
        until(lambda: said.read_text().endswith("\n"))
    assert child.returncode == status
    assert gone(*map(int, said.read_text().split()))


@pytest.mark.parametrize(
    ("code", "first", "status"),
    [
        (QUICK, signal.SIGTERM, -signal.SIGTERM),
        (DEAF, signal.SIGTERM, -signal.SIGKILL),
        (BUSY, signal.SIGTERM, 0),
        (BUSY, signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_ending_a_kept_program_ends_all_it_started(
    tmp_path: Path, code: str, first: int, status: int
) -> None:
    said = tmp_path / "said"
    grace_s = 0.2 if code == DEAF else 60.0
    with (
        said.open("wb") as stream,
        kept([sys.executable, "-c", code], env={}, cwd=tmp_path, stdout=stream) as child,
    ):
        until(lambda: said.read_text().endswith("\n"))
        assert end(child, first, grace_s) == status
        assert gone(*map(int, said.read_text().split()))
        assert end(child) == status, "a second time nothing happens"


def test_a_keeper_that_takes_no_notice_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.run.kept.LAST_S", 0.1)
    said = tmp_path / "said"
    with (
        said.open("wb") as stream,
        kept([sys.executable, "-c", QUICK], env={}, cwd=tmp_path, stdout=stream) as child,
    ):
        until(lambda: said.read_text().endswith("\n"))
        child.send_signal(signal.SIGSTOP)
        assert end(child, signal.SIGKILL) == -signal.SIGKILL
    until(lambda: gone(*map(int, said.read_text().split())))


def test_a_program_that_cannot_be_started_or_bounded_is_told_and_leaves_no_keeper(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ValueError("no")

    before = descendants(os.getpid())
    with pytest.raises(FileNotFoundError), kept([tmp_path / "absent"], env={}, cwd=tmp_path):
        pass
    with (
        pytest.raises(OSError, match="bounded or kept"),
        kept(["true"], env={}, cwd=tmp_path, prepare=refuse),
    ):
        pass
    assert descendants(os.getpid()) == before


def test_without_a_keeper_there_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descendants(os.getpid())
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(OSError, match="bounded or kept"), kept(["sleep", "600"], env={}, cwd=tmp_path):
        pass
    until(lambda: descendants(os.getpid()) == before)


def test_bounds_are_the_programs_and_not_its_keepers(tmp_path: Path) -> None:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (77, 77))

    said = tmp_path / "said"
    code = "import resource, time; print(resource.getrlimit(resource.RLIMIT_NOFILE), flush=True); " + SLEEP
    words = [sys.executable, "-c", code]
    with (
        said.open("wb") as stream,
        kept(words, env={}, cwd=tmp_path, stdout=stream, prepare=bound) as child,
    ):
        until(lambda: said.read_text() == "(77, 77)\n")
        own = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == own
        end(child, signal.SIGKILL)
