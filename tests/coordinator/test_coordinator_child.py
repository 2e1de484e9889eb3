"""Children: what they say is kept without secrets, how they end is told, and nothing they started stays."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest

from assay.backends.base import Command, Ended, Reached
from assay.coordinator import child
from assay.coordinator.child import MARK, kill_marked, launcher
from assay.coordinator.output import LONGEST_LINE, LONGEST_SECRET, Output
from assay.coordinator.redact import REDACTED, Secrets
from assay.coordinator.stop import Stop, Why
from assay.errors import RunError
from assay.paths import EVAL
from assay.process import start_time_ticks
from assay.run.key import Key
from toy_checkout import until

CANARY = 'canary/"5d1"&key'


@dataclass
class Launched:
    """One child, as the coordinator sees it."""

    ended: Ended
    log: list[str] = field(default_factory=list)
    heard: list[Reached] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


def launch(
    code: str,
    folder: Path,
    *words: str,
    reached: Callable[[], Reached] = lambda: Reached(0),
    secrets: dict[str, Key] | None = None,
    memory_gib: float | None = None,
    during: Callable[[Stop, Sequence[str]], None] = lambda stop, log: None,
) -> Launched:
    """Run a Python program as a job's child; `during` is called with each line that it prints."""
    log: list[str] = []
    heard: list[Reached] = []
    commands: list[Command] = []

    async def work() -> Ended:
        stop = Stop()

        def hear(line: str) -> None:
            log.append(line)
            during(stop, log)

        start = launcher(
            job="job",
            log=hear,
            secrets=Secrets(),
            stop=stop,
            heard=heard.append,
            record=commands.append,
            memory_gib=memory_gib,
        )
        command = Command([sys.executable, "-c", code, *words], {"ONLY": "this"}, folder, secrets or {})
        return await start(command, reached)

    ended = asyncio.run(asyncio.wait_for(work(), 120))
    return Launched(ended, log, heard, commands)


def test_a_child_has_its_own_environment_its_secrets_and_nothing_of_ours(tmp_path: Path) -> None:
    code = (
        "import json, os, pathlib\n"
        "pathlib.Path('seen').write_text(json.dumps([dict(os.environ), os.getcwd()]))\n"
        "print(os.getpid() == os.getpgid(0) == os.getsid(0))"
    )
    done = launch(code, tmp_path, secrets={"KEY": Key(CANARY)})
    environment, cwd = json.loads((tmp_path / "seen").read_text())
    assert len(environment.pop(MARK)) == 32
    environment.pop("LC_CTYPE", None)  # Python's own
    assert environment == {"ONLY": "this", "KEY": CANARY}
    assert cwd == str(tmp_path)
    assert done.log == ["True"], "its group and its session are its own"
    assert (done.ended.code, done.ended.why) == (0, "exit")


def test_what_a_child_says_is_logged_line_by_line_without_its_secrets(tmp_path: Path) -> None:
    code = (
        "import base64, json, os, sys, urllib.parse\n"
        "key = os.environ['KEY']\n"
        "print('plain', key); print('quoted', urllib.parse.quote(key, safe=''))\n"
        "print(json.dumps({'key': key}), file=sys.stderr)\n"
        "print(base64.b64encode(key.encode()).decode())\n"
        "print('5%\\r50%\\r100%'); print('\\x1b[31mred\\x1b[0m'); sys.stdout.write('no end')"
    )
    unbuffered = f"import sys; sys.stdout.reconfigure(line_buffering=True)\n{code}"
    done = launch(unbuffered, tmp_path, secrets={"KEY": Key(CANARY)})
    said = "\n".join(done.log)
    for spelling in (CANARY, quote(CANARY, safe=""), json.dumps(CANARY)[1:-1]):
        assert spelling not in said
    assert base64.b64encode(CANARY.encode()).decode().rstrip("=") not in said
    assert said.count(REDACTED) == 4
    assert done.log[-3:] == ["100%", "\\x1b[31mred\\x1b[0m", "no end"]
    assert done.ended.said == " | ".join(each for each in done.log[-4:])
    assert done.commands[0].secrets.keys() == {"KEY"}


def test_an_endless_line_is_cut_and_no_secret_is_cut_in_two() -> None:
    secrets = Secrets()
    secrets.add(Key(CANARY))
    lines: list[str] = []
    output = Output(secrets, lines.append)
    flood = b"x" * (LONGEST_LINE - 1) + CANARY.encode() + b"y" * LONGEST_SECRET
    for begin in range(0, len(flood), 1000):
        output.data_received(flood[begin : begin + 1000])
    output.data_received(b"z" * 10 * LONGEST_LINE + b" the rest\nnext\n")
    assert len(lines) == 2
    assert CANARY[:4] not in lines[0]
    assert lines[0].endswith(f"x{REDACTED[0]} ... (cut)")
    assert lines[1] == "next"


def test_a_progress_bar_without_line_ends_does_not_fill_the_memory_and_shows_its_last_state() -> None:
    lines: list[str] = []
    output = Output(Secrets(), lines.append)
    for number in range(20_000):
        output.data_received(b"\r%d of 19999" % number)
    assert lines == []
    output.connection_lost(None)
    assert lines == ["19999 of 19999"]
    assert output.last == "19999 of 19999"


def test_of_a_long_last_line_the_beginning_is_remembered_and_the_log_has_it_whole() -> None:
    log: list[str] = []
    output = Output(Secrets(), log.append)
    output.data_received(b"before\n{" + b"x" * 5000 + b"}\n")
    assert log[-1] == "{" + "x" * 5000 + "}"
    assert output.last == "before | {" + "x" * 299 + " ..."


def test_how_far_a_child_is_is_told_when_it_changes_and_at_its_end(tmp_path: Path) -> None:
    count = tmp_path / "count"

    def reached() -> Reached:
        return Reached(len(count.read_bytes()), 3)  # no file yet is no reason to stop looking

    code = "import pathlib; pathlib.Path('count').write_text('xxx')"
    done = launch(code, tmp_path, reached=reached)
    assert done.heard[-1] == Reached(3, 3)
    assert len(done.heard) == len(set(done.heard))


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 11)"])
def test_a_child_s_code_is_recorded_and_nothing_is_raised(tmp_path: Path, code: str) -> None:
    assert launch(code, tmp_path).ended.code == (3 if "Exit" in code else -11)


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        start = launcher(
            job="job",
            log=print,
            secrets=Secrets(),
            stop=Stop(),
            heard=print,
            record=lambda command: None,
        )
        await start(Command([str(tmp_path / "missing")], {}, tmp_path), lambda: Reached(0))

    with pytest.raises(RunError, match="missing cannot be started"):
        asyncio.run(work())


def test_a_child_is_held_to_its_memory_and_the_log_says_by_which_means(tmp_path: Path) -> None:
    done = launch("held = bytearray(700 << 20)", tmp_path, memory_gib=0.5)
    assert done.ended.code != 0
    assert done.log[0].startswith("memory is bounded to 0.5 GiB, of ")
    assert "MemoryError" in done.ended.said or "its bound of 0.5 GiB" in done.ended.said


STRAY = """
import pathlib, subprocess, sys, time
# A program that has left its parent, its group and its session.
code = (
    "import os, pathlib, time; os.fork() and os._exit(0)\\n"
    "pathlib.Path('begun').write_text(str(os.getpid())); os.rename('begun', 'stray'); time.sleep(600)"
)
subprocess.run([sys.executable, "-c", code], start_new_session=True)
while not pathlib.Path("stray").exists():
    time.sleep(0.01)
print(pathlib.Path("stray").read_text(), flush=True)
"""


@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_nothing_that_a_child_started_stays_however_it_ended(tmp_path: Path, how: str) -> None:
    def stop_it(stop: Stop, log: Sequence[str]) -> None:
        if how == "hangs":
            stop.ask("budget")

    done = launch(STRAY + ("" if how == "ends" else "time.sleep(600)"), tmp_path, during=stop_it)
    assert done.ended.why == ("exit" if how == "ends" else "budget")
    stray = int(done.log[0])
    assert start_time_ticks(stray) is None


SLOW = """
import signal, sys, time
if "deaf" in sys.argv:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("cleaned up", flush=True)
    sys.exit(7)
"""


@pytest.mark.parametrize("why", ["cancelled", "budget", "disk"])
def test_a_child_is_asked_politely_first_and_the_reason_is_told(tmp_path: Path, why: Why) -> None:
    done = launch(SLOW, tmp_path, during=lambda stop, log: stop.ask(why) if log == ["ready"] else None)
    assert done.log == ["ready", "cleaned up"]
    assert (done.ended.code, done.ended.why, done.ended.said) == (7, why, "ready | cleaned up")


def test_a_second_signal_ends_a_deaf_child_at_once(tmp_path: Path) -> None:
    def twice(stop: Stop, log: Sequence[str]) -> None:
        stop.ask("cancelled")
        stop.ask("cancelled")

    done = launch(SLOW, tmp_path, "deaf", during=twice)
    assert (done.ended.code, done.ended.why) == (-signal.SIGKILL, "cancelled")


def test_a_deaf_child_is_killed_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "POLITE_S", 0.1)
    monkeypatch.setattr(child, "FIRM_S", 0.1)
    done = launch(SLOW, tmp_path, "deaf", during=lambda stop, log: stop.ask("cancelled"))
    assert done.ended.code == -signal.SIGKILL


def test_a_stop_that_was_asked_before_ends_the_child_too(tmp_path: Path) -> None:
    async def work() -> Ended:
        above = Stop()
        above.ask("disk")
        start = launcher(
            job="job",
            log=print,
            secrets=Secrets(),
            stop=Stop(above),
            heard=print,
            record=lambda command: None,
        )
        command = Command([sys.executable, "-c", "import time; time.sleep(600)"], {}, tmp_path)
        return await start(command, lambda: Reached(0))

    ended = asyncio.run(asyncio.wait_for(work(), 60))
    assert ended.why == "disk"
    assert ended.code != 0


def test_a_fault_of_ours_ends_the_child_and_is_told(tmp_path: Path) -> None:
    code = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"

    def fail(reached: Reached) -> None:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        raise OSError("no such luck")

    async def work() -> None:
        start = launcher(
            job="job", log=print, secrets=Secrets(), stop=Stop(), heard=fail, record=lambda command: None
        )
        await start(Command([sys.executable, "-c", code], {}, tmp_path), lambda: Reached(0))

    with pytest.raises(OSError, match="no such luck"):
        asyncio.run(asyncio.wait_for(work(), 60))
    assert start_time_ticks(int((tmp_path / "pid").read_text())) is None


RUN = """
import asyncio, sys
from pathlib import Path
from assay.backends.base import Command, Reached
from assay.coordinator.child import launcher
from assay.coordinator.redact import Secrets
from assay.coordinator.stop import Stop

async def work():
    start = launcher(job="job", log=lambda line: print(line, flush=True), secrets=Secrets(), stop=Stop(),
                     heard=lambda reached: None, record=lambda command: None)
    await start(Command([sys.executable, "-c", sys.argv[1]], {}, Path("/")), lambda: Reached(0))

asyncio.run(work())
"""


def test_a_child_dies_with_a_coordinator_that_was_killed() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, code], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(EVAL)}
    )
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    assert start_time_ticks(pid) is not None
    run.kill()
    run.wait()
    run.stdout.close()
    until(lambda: start_time_ticks(pid) is None)


def test_children_run_beside_each_other(tmp_path: Path) -> None:
    # Each waits for the other, so none could end if they ran one after the other.
    code = (
        "import pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)"
    )

    async def work() -> list[Ended]:
        start = launcher(
            job="job",
            log=print,
            secrets=Secrets(),
            stop=Stop(),
            heard=print,
            record=lambda command: None,
        )
        commands = [
            Command([sys.executable, "-c", code, *names], {}, tmp_path) for names in (("a", "b"), ("b", "a"))
        ]
        return await asyncio.gather(*(start(command, lambda: Reached(0)) for command in commands))

    assert [ended.code for ended in asyncio.run(asyncio.wait_for(work(), 60))] == [0, 0]


def test_only_what_bears_the_mark_is_killed(tmp_path: Path) -> None:
    code = "import time; print('there', flush=True); time.sleep(600)"
    others = [
        subprocess.Popen([sys.executable, "-c", code], env={MARK: mark}, stdout=subprocess.PIPE)
        for mark in ("a" * 32, "b" * 32)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            assert other.stdout.readline() == b"there\n"
        assert kill_marked("a" * 32) == 1
        assert others[0].wait(60) == -signal.SIGKILL
        assert others[1].poll() is None
        assert kill_marked("c" * 32) == 0
    finally:
        for other in others:
            other.kill()
            other.wait()
            assert other.stdout is not None
            other.stdout.close()


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_no_descriptor_of_a_child_is_left_open(tmp_path: Path) -> None:
    launch("print('warm')", tmp_path)
    before = open_descriptors()
    launch("print('again')", tmp_path)
    assert open_descriptors() == before
