"""Ctrl-C, SIGTERM and kill -9: nothing keeps running, what finished is kept, the record tells the truth."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from toy_checkout import Command, Toy, processes, until

pytestmark = pytest.mark.slow


def finished(run: Path, entry: str = "count") -> int:
    """Rollouts in the evaluator's record."""
    traces = run / entry / "traces.jsonl"
    return traces.read_bytes().count(b"\n") if traces.exists() else 0


def in_mid_run(toy: Toy, runs: Path) -> tuple[Command, Path]:
    """A run of which one rollout has finished and the next has begun."""
    command = toy.start("run", "toy", "--runs", runs, "--json")
    run = command.run()
    until(lambda: finished(run) and any("sleep 600" in words for words in processes(run.name)))
    return command, run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_and_keeps_what_finished(toy: Toy, runs: Path, number: int) -> None:
    with toy.entry("toy", "count", {"program": True}, concurrent=1), toy.faults(delay_s=0.5):
        command, run = in_mid_run(toy, runs)
        command.signal(number)
        done = command.wait()
    assert done.code == 6
    assert processes(run.name) == []
    assert done.json["status"] == "cancelled"
    assert done.json["counts"]["scored"] == finished(run)
    assert 1 <= finished(run) < 6
    assert done.json["counts"]["missing"] == 6 - finished(run)
    assert "what has finished is kept" in done.err
    state = json.loads((run / "state.json").read_text())
    assert (state["phase"], state["entries"][0]["finished"]) == ("cancelled", finished(run))
    assert {"summary.json", "summary.md", "samples.jsonl", "manifest.json"} <= {p.name for p in run.iterdir()}
    status = toy.run("status", run, "--json")
    assert (status.code, status.json["status"]) == (6, "cancelled")
    assert toy.run("summarize", run, "--json").code == 6
    assert not (toy.root / ".assay/private" / run.name).exists()


def test_a_second_ctrl_c_does_not_wait_for_an_evaluator_that_is_deaf(toy: Toy, runs: Path) -> None:
    with toy.entry("toy", "count", {"program": True, "deaf": True}, concurrent=1), toy.faults(delay_s=2.0):
        command, run = in_mid_run(toy, runs)
        command.signal(signal.SIGINT)
        until(lambda: "again to stop at once" in command.err.read_text())
        assert any("vf_eval.py" in words for words in processes(run.name))
        command.signal(signal.SIGINT)
        done = command.wait()
    assert done.code == 6
    assert processes(run.name) == [], "also what the evaluator started in sessions of its own"
    assert done.json["counts"]["scored"] == finished(run) >= 1
    assert (run / "manifest.json").is_file()


def test_kill_9_leaves_nothing_running_and_status_says_that_the_run_died(toy: Toy, runs: Path) -> None:
    with toy.entry("toy", "count", {"program": True}, concurrent=1), toy.faults(delay_s=0.5):
        command, run = in_mid_run(toy, runs)
        live = toy.run("status", run, "--json")
        command.signal(signal.SIGKILL)
        assert command.wait().code == -signal.SIGKILL
        until(lambda: processes(run.name) == [])
    assert (live.code, live.json["status"], live.json["phase"]) == (0, "live", "running")
    status = toy.run("status", run, "--json")
    assert (status.code, status.json["status"]) == (5, "died")
    assert status.json["phase"] == "running"
    said = toy.run("status", run)
    assert "is gone" in said.out
    assert "next: assay summarize" in said.out
    summary = toy.run("summarize", run, "--json")
    assert summary.code == 5
    assert summary.json["counts"]["scored"] == finished(run) >= 1
    assert summary.json["problems"] == ["the run did not come to its end (died)"]
    audit = toy.run("audit", run, "--json")
    assert audit.code == 5
    assert "files" in audit.json["failed"]
    left = toy.root / ".assay/private" / run.name
    assert left.exists(), "nobody was there to remove it"
    assert toy.run("run", "toy", "--runs", runs, "--json").code == 0
    assert not left.exists(), "the next run did, and with it the key of a dead server"


def test_kill_9_between_the_last_state_and_the_manifest_is_not_done(toy: Toy, runs: Path) -> None:
    run = Path(toy.run("run", "toy", "--runs", runs, "--json").json["run_dir"])
    assert toy.run("status", run).code == 0
    (run / "manifest.json").unlink()
    status = toy.run("status", run, "--json")
    assert (status.code, status.json["status"]) == (5, "died")


def test_ctrl_c_before_the_server_is_ready_cancels_at_once(toy: Toy, runs: Path, tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    with toy.faults(never_ready=str(waiting)):
        command = toy.start("run", "toy", "--runs", runs, "--json")
        run = command.run()
        until(waiting.exists)
        command.signal(signal.SIGINT)
        done = command.wait()
    assert done.code == 6
    assert done.json["error"]["what"] == "cancelled before anything was asked"
    assert processes(run.name) == []
    assert toy.run("status", run, "--json").json["status"] == "cancelled"


def test_ctrl_c_while_the_taskset_describes_itself_is_a_cancellation(toy: Toy, runs: Path) -> None:
    with toy.entry("toy", "count", {"describe_s": 600}):
        command = toy.start("run", "toy", "--runs", runs, "--json")
        run = command.run()
        until(lambda: any("toy_tasks.describe" in words for words in processes(run.name)))
        command.signal(signal.SIGINT)
        done = command.wait()
    assert done.code == 6
    assert processes(run.name) == []
    assert toy.run("status", run, "--json").json["status"] == "cancelled"


def test_what_a_run_starts_does_not_hear_the_terminals_ctrl_c(toy: Toy, runs: Path) -> None:
    with toy.entry("toy", "count", {"describe_s": 1}, concurrent=1), toy.faults(delay_s=0.3):
        command = toy.start("run", "toy", "--runs", runs, "--json")
        run = command.run()
        seen: set[str] = set()

        def sessions() -> bool:
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    told = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
                    name = (path / "cmdline").read_bytes()
                    group = os.getpgid(int(path.name))
                except (OSError, ProcessLookupError):
                    continue
                if run.name.encode() in told:
                    assert group != os.getpgid(command.pid)
                    seen.update(word for word in ("describe", "server", "vf_eval") if word.encode() in name)
            return len(seen) == 3

        until(sessions)
        assert command.wait().code == 0


def test_a_run_id_that_is_used_again_is_not_taken_for_the_run(toy: Toy, runs: Path) -> None:
    with toy.entry("toy", "count", {"program": True}, concurrent=1), toy.faults(delay_s=0.5):
        command, run = in_mid_run(toy, runs)
        command.signal(signal.SIGKILL)
        command.wait()
        until(lambda: processes(run.name) == [])
    state = json.loads((run / "state.json").read_text())
    state["owner"]["pid"] = os.getpid()
    (run / "state.json").write_text(json.dumps(state))
    assert toy.run("status", run, "--json").json["status"] == "died"
