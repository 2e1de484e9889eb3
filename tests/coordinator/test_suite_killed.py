"""Killed with SIGKILL at any moment and resumed, a run ends as an undisturbed one, and its audit passes."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from suites import NOBODY, Counting, asking, findings, quiet, write

from signed import STATEMENT, key_in
from toy_checkout import Done, Toy, processes, until

pytestmark = pytest.mark.slow

KILL_AT = Path(__file__).with_name("kill_at.py")
SLOTS = 3
ITEMS = 16
SOME = 12
"""Of its own writes, spread over a run, at which an ordinary test kills it; the long one takes all."""


def sound(toy: Toy, run: Path) -> None:
    """Nothing about a run fails an audit."""
    done = toy.run("audit", run, "--json")
    assert (done.code, done.json["failed"]) == (0, []), done.out


class Undisturbed:
    """A suite whose every request is its own, and what an undisturbed run of it finds."""

    def __init__(self, toy: Toy, folder: Path) -> None:
        self.toy = toy
        self.server = Counting(delay_s=0.005)
        self.server.__enter__()
        jobs = [
            asking("first", items=ITEMS, wrong_every=4),
            asking("second", items=ITEMS) | {"repeats": 2, "generation": {"temperature": 0.7, "seed": 3}},
        ]
        self.suite = write(
            folder / "killed.toml", {"local": self.server.target(SLOTS)}, jobs, max_parallel_jobs=2
        )
        runs = folder / "undisturbed"
        runs.mkdir()
        begin = time.monotonic()
        done = toy.run("run", "--suite", self.suite, "--runs", runs)
        self.seconds = time.monotonic() - begin
        assert done.code == 0, done.err
        self.found = findings(done.run)
        self.counted = Counter(self.server.asked)

    def killed_at(self, moments: list[float], runs: Path) -> Path:
        """Kill a run and its resumes at these moments, let it end, and hold it against the undisturbed."""
        self.server.asked.clear()
        command = self.toy.start("run", "--suite", self.suite, "--runs", runs)
        run = command.run()
        for moment in moments:
            time.sleep(moment)
            with contextlib.suppress(ProcessLookupError):
                command.signal(signal.SIGKILL)
            command.wait()
            until(lambda: processes(run.name) == [] and self.server.in_flight == 0)
            command = self.toy.start("resume", run)
        done = command.wait()
        assert done.code == 0, done.err
        assert findings(run) == self.found
        extra = sum((self.server.asked - self.counted).values())
        assert extra <= SLOTS * len(moments), "at most what was in flight at each kill is asked again"
        assert not self.counted - self.server.asked
        return run


@pytest.fixture(scope="module")
def undisturbed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    made = Undisturbed(toy, tmp_path_factory.mktemp("killed"))
    yield made
    made.server.__exit__()


def kill_at_random(undisturbed: Undisturbed, runs: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    while kills:
        moments = [
            chance.uniform(0, undisturbed.seconds) for _ in range(min(kills, chance.choice((1, 1, 2, 3))))
        ]
        kills -= len(moments)
        run = undisturbed.killed_at(moments, runs)
        sound(undisturbed.toy, run)


def test_kill_9_at_any_moment_loses_only_what_was_in_flight_and_ends_in_the_same_summary(
    undisturbed: Undisturbed, runs: Path
) -> None:
    kill_at_random(undisturbed, runs, seed=5, kills=8)


@pytest.mark.long
def test_kill_9_at_a_hundred_moments(undisturbed: Undisturbed, runs: Path) -> None:
    kill_at_random(undisturbed, runs, seed=17, kills=100)


class Written:
    """A small suite, killed at its own writes (kill_at.py)."""

    def __init__(self, toy: Toy, server: Counting, folder: Path, retention: str = "all") -> None:
        jobs = [
            asking("first", items=3, wrong_every=2),
            asking("second", items=3) | {"repeats": 2},
            quiet("third", items=2),
        ]
        targets = {**NOBODY, "local": server.target(2)}
        self.toy, self.folder = toy, folder
        self.key = {"ASSAY_SIGNING_KEY_FILE": str(key_in(folder)[0])}
        self.suite = write(folder / "written.toml", targets, jobs, max_parallel_jobs=2, retention=retention)
        done, run = self.ended(0, "whole")
        assert done.code == 0, done.err
        self.found = findings(run)
        self.writes = int(done.err.splitlines()[-1].split()[0])

    def ended(self, where: int | str, name: str) -> tuple[Done, Path]:
        """A run that kills itself there, and its directory."""
        runs = self.folder / name
        runs.mkdir()
        done = self.command(where, "run", "--suite", self.suite, "--runs", runs)
        made = list(runs.iterdir())
        return done, made[0] if made else runs

    def command(self, where: int | str, *words: str | Path) -> Done:
        """A command that kills itself there."""
        return self.toy.program(sys.executable, KILL_AT, str(where), *words, **self.key)

    def killed_at(self, where: int | str, again: int = 0) -> None:
        """Kill a run there, and its resume at its `again`th write: the last is as if nothing had been."""
        done, run = self.ended(where, f"{where}-{again}")
        if done.code != -signal.SIGKILL:
            assert done.code == 0, "it ended before it had written so much"
            return
        if not (run / "state.json").exists():
            told = self.toy.run("resume", run)
            assert told.code == 5
            assert ("nothing was asked" in told.err) == (run / "lock").exists(), told.err
            return
        until(lambda: processes(run.name) == [])
        if again:
            self.command(again, "resume", run)
            until(lambda: processes(run.name) == [])
        done = self.toy.run("resume", run, **self.key)
        assert done.code == 0, done.err
        assert findings(run) == self.found
        assert (run / STATEMENT).exists()
        sound(self.toy, run)
        assert [path for path in run.rglob(".*") if "attempt-" not in path.as_posix()] == []


@pytest.fixture
def written(toy: Toy, tmp_path: Path) -> Iterator[Written]:
    with Counting() as server:
        yield Written(toy, server, tmp_path)


def test_killed_at_some_of_its_own_writes_a_run_goes_on_and_its_audit_passes(written: Written) -> None:
    for where in range(written.writes // SOME, written.writes, written.writes // SOME):
        written.killed_at(where)


@pytest.mark.parametrize("told", ["run-started", "job-started", "job-ended", "run-ended"])
def test_killed_right_after_an_event_a_run_goes_on_and_its_audit_passes(written: Written, told: str) -> None:
    written.killed_at(told)


@pytest.mark.parametrize("words", [("toy",), ("--suite", "quiet.toml")], ids=["profile", "suite"])
def test_a_half_written_report_in_a_finished_run_is_named_by_its_audit_and_removed_by_a_resume(
    toy: Toy, runs: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    suite = write(tmp_path / "quiet.toml", NOBODY, [quiet()])
    named = [suite if word == suite.name else word for word in words]
    done = toy.run("run", *named, "--runs", runs, "--json")
    assert done.code == 0, done.err
    left = done.run / ".report.html.abcdefgh.partial"
    left.write_bytes(b"<!doctype")
    audited = toy.run("audit", done.run, "--json")
    assert (audited.code, audited.json["failed"]) == (5, ["files", "form"])
    assert (
        f"{left.name} is nothing that a run writes, unless its write was killed: assay resume" in audited.out
    )
    assert toy.run("resume", done.run).code == 0
    assert not left.exists()
    sound(toy, done.run)


@pytest.mark.long
@pytest.mark.parametrize(("retention", "part"), [("all", 1.0), ("errors", 0.3), ("none", 0.3)])
def test_killed_at_each_of_its_own_writes_a_run_goes_on_and_its_audit_passes(
    toy: Toy, tmp_path: Path, retention: str, part: float
) -> None:
    chance = random.Random(23)
    with Counting() as server:
        written = Written(toy, server, tmp_path, retention)
        # What is not kept goes at the end.
        for where in range(round(written.writes * (1 - part)) + 1, written.writes + 1):
            written.killed_at(where, chance.choice((0, chance.randrange(1, written.writes))))
