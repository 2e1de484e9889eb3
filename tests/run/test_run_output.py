"""What a run says: heartbeats without a terminal, a live line on one, results and JSON where they belong."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from assay.run import watch
from assay.run.watch import Cancellation, Meter, cancellation, count_lines
from standin import Reply, StandIn
from toy_checkout import WAIT_S, Toy


def test_progress_without_a_terminal_is_heartbeats_by_the_clock_without_control_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(watch, "POLL_S", 0.001)
    record = tmp_path / "traces.jsonl"
    polls = 0
    heard: list[int] = []

    def running() -> bool:
        nonlocal polls
        polls += 1
        if polls % 5 == 0:
            with record.open("a") as file:
                file.write("{}\n")
        return polls < 20

    done = watch.watch("demo/x", 4, lambda: record, running, Cancellation(), heard.append)
    lines = capsys.readouterr().err.splitlines()
    assert done == 4
    assert heard == [1, 2, 3, 4]
    assert len(lines) == 19, "also while nothing happens"
    assert lines[0].startswith("assay: demo/x: 0/4, 0 s, ?, left ?")
    assert all(line.startswith("assay: demo/x: ") for line in lines)
    assert not any("\x1b" in line or "\r" in line for line in lines)


def test_a_torn_line_is_no_progress(tmp_path: Path) -> None:
    record = tmp_path / "traces.jsonl"
    assert count_lines(record) == 0
    record.write_bytes(b"{}\n{to")
    assert count_lines(record) == 1


def test_a_meter_tells_no_rate_before_it_knows_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("assay.run.watch.time.monotonic", lambda: clock[0])
    meter = Meter("demo/x", 80)
    clock[0] += 10
    assert meter.line() == "assay: demo/x: 0/80, 10 s, ?, left ?"
    meter.update(20)
    clock[0] += 10
    assert meter.line() == "assay: demo/x: 20/80, 20 s, 1.00/s, left 60 s"


def test_signals_are_counted_and_their_handlers_given_back() -> None:
    before = [signal.getsignal(number) for number in watch.SIGNALS]
    with cancellation() as asked:
        assert (asked.asked, asked.urgent) == (False, False)
        signal.raise_signal(signal.SIGTERM)
        assert (asked.asked, asked.urgent, asked.signal) == (True, False, signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert asked.urgent
    assert [signal.getsignal(number) for number in watch.SIGNALS] == before


def test_results_go_to_stdout_and_diagnostics_to_stderr(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "toy", "--runs", runs)
    assert done.code == 0
    assert done.out.startswith("toy: two families of three questions: a toy\n")
    assert done.out.splitlines()[-1] == f"run: {done.run}"
    assert "letter  3" in done.out
    assert "letter  3" not in done.err
    assert "\x1b" not in done.out + done.err


def test_the_host_runtime_is_said_in_banner_record_summary_and_audit(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "toy", "--runs", runs)
    assert "runtime: subprocess; egress: not enforced" in done.err
    assert "no Docker engine is used" in done.err
    resolved = json.loads((done.run / "resolved.json").read_text())
    assert (resolved["runtime"], resolved["egress"]) == ("subprocess", "not enforced")
    assert "runtime: subprocess; egress: not enforced" in (done.run / "summary.md").read_text()
    audit = toy.run("audit", done.run, "--json")
    isolation = next(check for check in audit.json["checks"] if check["name"] == "isolation")
    assert isolation["verdict"] == "UNKNOWN"
    assert list(isolation["evidence"]) == ["runtime: subprocess; egress: not enforced"]


COUNTS = {"planned", "scored", "errored", "truncated", "missing", "empty", "thought_only", "unparsed"}
COUNTS |= {"duplicates"}


def test_every_verb_ends_stdout_with_one_json_object(toy: Toy, runs: Path) -> None:
    answers = {"run": toy.run("run", "toy", "--runs", runs, "--json")}
    run = Path(answers["run"].json["run_dir"])
    for verb in ("status", "summarize", "audit", "reward"):
        answers[verb] = toy.run(verb, run, "--json")
    for verb, done in answers.items():
        assert done.code == 0, (verb, done.err)
        assert done.json["run_dir"] == str(run), verb
        assert json.loads(json.dumps(done.json, allow_nan=False)) == done.json
    for verb in ("run", "summarize", "audit"):
        assert len(answers[verb].out.splitlines()) == 1, "what is printed for people goes to stderr"
    assert set(answers["run"].json) == {
        "run_dir", "status", "exit_code", "signed_by", "pins", "runtime", "egress", "counts", "scores",
        "problems", "notes",
    }  # fmt: skip
    assert set(answers["run"].json["counts"]) == COUNTS
    assert {"family", "score", "low", "high", "counts", "baseline"} <= set(answers["run"].json["scores"][0])
    told = {"run_dir", "status", "exit_code", "phase", "entries", "error", "resume"}
    assert set(answers["status"].json) == told
    assert answers["status"].json["entries"][0]["finished"] == 6
    assert answers["summarize"].json["counts"] == answers["run"].json["counts"]
    assert answers["summarize"].json["families"] == answers["run"].json["scores"]
    assert set(answers["audit"].json) == {"run_dir", "status", "exit_code", "failed", "checks"}
    assert answers["reward"].json["entries"]["count"]["agree"] is True


def test_summarize_computes_again_what_the_run_printed(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "toy", "--runs", runs)
    again = toy.run("summarize", done.run)
    assert again.code == 0
    assert again.out == done.out.rpartition("run: ")[0]


def test_the_upstream_reward_is_ours_also_where_rows_failed(toy: Toy, runs: Path) -> None:
    with StandIn(reply=lambda number, body: Reply(status=500 if number < 3 else 200)) as server:
        address = ("--base-url", server.base_url, "--model", "stand-in", "--runs", runs, "--json")
        with toy.entry("pair", "second", {}, concurrent=1, size=2):
            run = Path(toy.run("run", "pair", "second", *address).json["run_dir"])
    done = toy.run("reward", run, "--json")
    assert (done.code, done.json["status"]) == (0, "same")
    assert done.json["entries"]["second"]["upstream"] == pytest.approx(0.25)
    traces = run / "second/traces.jsonl"
    traces.write_bytes(traces.read_bytes() + traces.read_bytes().splitlines(keepends=True)[-1])
    differs = toy.run("reward", run, "--json")
    assert (differs.code, differs.json["status"]) == (5, "differs")


@pytest.mark.slow
def test_a_run_whose_diagnostics_nobody_reads_comes_to_its_end(toy: Toy, runs: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        toy.words("run", "toy", "--runs", runs, "--json"),
        cwd=toy.root,
        env=toy.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=write,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    os.close(write)
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "done"


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["summarize", "audit", "status"])
def test_a_reader_who_went_away_is_no_error(toy: Toy, runs: Path, verb: str) -> None:
    run = toy.run("run", "toy", "--runs", runs).run
    read, write = os.pipe()
    os.close(read)
    words = toy.words(verb, run)
    done = subprocess.run(
        words,
        env=toy.environment(),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("hung_up", [False, True])
def test_on_a_terminal_progress_is_a_live_line_and_the_run_outlives_it(
    toy: Toy, runs: Path, hung_up: bool
) -> None:
    main, side = pty.openpty()
    with toy.faults(delay_s=0.1):
        process = subprocess.Popen(
            toy.words("run", "toy", "--runs", runs, "--json"),
            cwd=toy.root,
            env=toy.environment(TERM="xterm", COLUMNS="100"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=side,
        )
        os.close(side)
        said = b""
        while True:
            try:
                chunk = os.read(main, 4096)
            except OSError:
                break
            if not chunk:
                break
            said += chunk
            if hung_up and b"toy/count" in said:
                break
        os.close(main)
        out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, out
    assert b"toy/count" in said
    assert hung_up or b"6/6" in said
    assert b"/s" in said
    assert b"\x1b" not in out
    assert json.loads(out.splitlines()[-1])["status"] == "done"
