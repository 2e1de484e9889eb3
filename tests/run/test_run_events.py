"""A profile's run has a lock and events, as a suite's has, and says what to do instead of a resume."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from toy_checkout import Toy, processes, until

pytestmark = pytest.mark.slow


def test_a_profiles_run_tells_its_entries_and_is_locked_while_it_runs(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "toy", "--runs", runs, "--json")
    assert done.code == 0, done.err
    run = Path(done.json["run_dir"])
    rows = [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]
    told = [(row["n"], row["kind"], row.get("entry")) for row in rows]
    assert told == [
        (1, "run-started", None),
        (2, "entry-started", "count"),
        (3, "entry-ended", "count"),
        (4, "run-ended", None),
    ]
    assert (rows[2]["finished"], rows[2]["native_exit_code"], rows[3]["status"]) == (6, 0, "done")
    assert "events.jsonl" in (run / "manifest.json").read_text()
    before = (run / "manifest.json").read_bytes()
    resumed = toy.run("resume", run, "--json")
    assert (resumed.code, resumed.json["status"]) == (0, "done"), resumed.err
    assert "nothing is left to be asked" in resumed.err
    assert (run / "manifest.json").read_bytes() == before


def test_a_resume_of_a_profiles_run_says_what_to_do_instead(toy: Toy, runs: Path) -> None:
    with toy.faults(delay_s=0.3):
        command = toy.start("run", "toy", "--runs", runs)
        run = command.run()
        until(lambda: (run / "count").exists())
        live = toy.run("resume", run)
        holder = json.loads((run / "lock").read_text())["owner"]["pid"]
        command.signal(signal.SIGKILL)
        command.wait()
        until(lambda: processes(run.name) == [])
    assert (live.code, holder) == (5, command.pid)
    assert f"is being written by process {command.pid}" in live.err
    dead = toy.run("resume", run, "--json")
    assert dead.code == 2
    assert "assay run --suite toy makes one that can be resumed" in dead.json["error"]["next"]
    assert f"assay status {run}" in dead.json["error"]["next"]
