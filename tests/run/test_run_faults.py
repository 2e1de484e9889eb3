"""What a run makes of a server, an evaluator or a disk that fails: exit code, counts, and what is kept."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from standin import Reply, StandIn
from toy_checkout import Done, Toy, processes, until

pytestmark = pytest.mark.slow


def other(server: StandIn, runs: Path, *words: str | Path) -> tuple[str | Path, ...]:
    """The words that run the profile `pair` against a server that is already there."""
    address = ("--base-url", server.base_url, "--model", server.model)
    return ("run", "pair", *words, *address, "--runs", runs, "--json")


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]


def add_up(counts: dict[str, int]) -> bool:
    parts = ("scored", "errored", "truncated", "missing")
    return counts["planned"] == sum(counts[part] for part in parts)


def asks(body: dict[str, Any], question: str) -> bool:
    return question in body["messages"][-1]["content"]


def test_a_run_of_two_entries_has_a_row_for_each_rollout_of_each_task(toy: Toy, runs: Path) -> None:
    with StandIn() as server:
        done = toy.run(*other(server, runs))
    assert done.code == 0, done.err
    run = Path(done.json["run_dir"])
    assert done.json["counts"]["planned"] == done.json["counts"]["scored"] == 12
    keys = [(row["entry"], row["task_key"], row["rollout"]) for row in rows(run)]
    names = ("letter/0", "letter/1", "digit/0", "digit/1")
    expected = [("first", name, number) for name in names for number in (0, 1)]
    assert keys == [*expected, *(("second", name, 0) for name in names)]
    assert (run / "manifest.json").is_file()
    assert {path.name for path in (run / "provenance/server").iterdir()} == {
        f"{entry}.{when}.json" for entry in ("first", "second") for when in ("before", "after")
    }


def test_one_entry_can_be_run_alone(toy: Toy, runs: Path) -> None:
    with StandIn() as server:
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 0, done.err
    assert done.json["counts"]["planned"] == 4
    assert not (Path(done.json["run_dir"]) / "first").exists()


def test_500s_in_the_middle_make_a_partial_run_with_a_range_for_a_score(toy: Toy, runs: Path) -> None:
    with StandIn(reply=lambda n, body: Reply(status=500 if asks(body, "digit 1") else 200)) as server:
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 4
    assert done.json["status"] == "partial"
    counts = {"planned": 4, "scored": 3, "errored": 1, "truncated": 0, "missing": 0}
    assert done.json["counts"] | counts == done.json["counts"]
    digit = next(family for family in done.json["scores"] if family["family"] == "digit")
    assert (digit["score"], digit["score_ceiling"]) == (0.5, 1.0)
    failed = next(row for row in rows(Path(done.json["run_dir"])) if row["status"] == "errored")
    assert failed["task_key"] == "digit/1"
    assert "500" in failed["error"]
    assert failed["reward"] is None


def test_a_run_in_which_every_request_failed_has_no_score_though_the_evaluator_exits_0(
    toy: Toy, runs: Path
) -> None:
    with StandIn(reply=lambda n, body: Reply(status=500)) as server:
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 5
    assert done.json["status"] == "failed"
    assert done.json["counts"]["errored"] == done.json["counts"]["planned"] == 4
    assert all(family["score"] is None and family["low"] is None for family in done.json["scores"])
    state = json.loads((Path(done.json["run_dir"]) / "state.json").read_text())
    assert state["entries"][0]["native_exit_code"] == 0
    assert state["phase"] == "failed"


def test_answers_cut_by_length_are_scored_and_told_apart(toy: Toy, runs: Path) -> None:
    def cut(number: int, body: dict[str, Any]) -> Reply:
        return Reply(finish_reason="length" if asks(body, "letter 0") else "stop")

    with StandIn(reply=cut) as server:
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 0, done.err
    assert (done.json["counts"]["truncated"], done.json["counts"]["scored"]) == (1, 3)
    row = next(row for row in rows(Path(done.json["run_dir"])) if row["status"] == "truncated")
    assert (row["task_key"], row["reward"], row["finish_reason"]) == ("letter/0", 1.0, "length")


def test_an_empty_answer_is_scored_and_counted_as_empty(toy: Toy, runs: Path) -> None:
    with StandIn(reply=lambda n, body: Reply(text="  " if asks(body, "letter 0") else "x")) as server:
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 0, done.err
    assert done.json["counts"]["empty"] == 1
    assert done.json["counts"]["scored"] == 4


def test_a_server_that_dies_in_mid_run_fails_the_run_and_is_named(toy: Toy, runs: Path) -> None:
    with toy.faults(dies_after=2), toy.entry("toy", "count", {}, concurrent=1):
        done = toy.run("run", "toy", "--runs", runs, "--json")
    assert done.code == 5
    assert done.json["counts"]["scored"] == 2
    assert done.json["counts"]["errored"] == 4
    assert any("the server cannot be identified any more" in problem for problem in done.json["problems"])
    assert "the server cannot be identified any more" in done.err


def test_a_server_whose_identity_changes_in_mid_run_fails_it(toy: Toy, runs: Path) -> None:
    def identity(number: int) -> dict[str, Any]:
        # Asked at the beginning, before the entry and after it.
        return {"schema": "assay/identity/v1", "system_fingerprint": f"assay-{number // 2}"}

    with StandIn(identity=identity) as server:
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 5
    assert done.json["counts"]["scored"] == 4
    assert done.json["problems"] == [
        "second: the server is not the one that the run began with: "
        'identity.system_fingerprint was "assay-0", is "assay-1"'
    ]
    before, after = (
        json.loads((Path(done.json["run_dir"]) / f"provenance/server/second.{when}.json").read_text())
        for when in ("before", "after")
    )
    assert before["source"] == "claimed by the server"
    assert before != after


def test_rewards_of_what_was_asked_are_told_though_another_entry_was_never_begun(
    toy: Toy, runs: Path
) -> None:
    def identity(number: int) -> dict[str, Any]:
        # Asked at the beginning, before the first entry and after it.
        return {"schema": "assay/identity/v1", "system_fingerprint": f"assay-{number // 2}"}

    with StandIn(identity=identity) as server:
        done = toy.run(*other(server, runs))
    assert done.code == 5, done.err
    told = toy.run("reward", done.json["run_dir"], "--json")
    assert told.code == 5, told.err
    assert told.json["unrecorded"] == ["second"]
    assert told.json["entries"]["first"]["agree"] is True
    assert "second: nothing is recorded" in told.out


def test_a_server_without_an_identity_is_recorded_as_offering_none(toy: Toy, runs: Path) -> None:
    with StandIn() as server:
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 0
    assert "server offers no identity\n" in done.err


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("models.lock", "file:models.lock"),
        ("eval/tasksets/toy_tasks/toy_tasks/__init__.py", "tree:eval/tasksets/toy_tasks"),
        ("eval/evaluators/toy/.venv/bin/vf-eval", "environment:toy"),
        ("runtime/Dockerfile", "file:runtime/Dockerfile"),
    ],
)
def test_an_input_changed_in_mid_run_fails_it_and_is_named(
    toy: Toy, runs: Path, path: str, named: str
) -> None:
    changed = toy.root / path
    before = changed.read_bytes()

    def reply(number: int, body: dict[str, Any]) -> Reply:
        changed.write_bytes(before + b"\n")
        return Reply()

    try:
        with StandIn(reply=reply) as server:
            done = toy.run(*other(server, runs, "second"))
    finally:
        changed.write_bytes(before)
    assert done.code == 5
    assert f"second: the frozen input {named} changed during the run" in done.json["problems"]
    assert done.json["counts"]["scored"] == 4


def test_a_model_changed_in_mid_run_fails_it_and_is_named(toy: Toy, runs: Path) -> None:
    model = toy.root / ".assay/models/toy-model/model.gguf"
    before = model.read_bytes()
    try:
        with toy.faults(delay_s=0.2):
            command = toy.start("run", "toy", "--runs", runs, "--json")
            run = command.run()
            until(lambda: (run / "count/traces.jsonl").exists())
            model.write_bytes(b"other weights")
            done = command.wait()
    finally:
        model.write_bytes(before)
    assert done.code == 5
    assert any("a frozen input cannot be verified any more" in text for text in done.json["problems"])


def test_a_run_directory_that_exists_is_left_alone(toy: Toy, runs: Path) -> None:
    with StandIn() as server:
        first = Path(toy.run(*other(server, runs, "second")).json["run_dir"])
        digest = first.name.rpartition("-")[2]
        taken = [
            runs / f"pair.{datetime.now(UTC) + timedelta(seconds=second):%Y%m%dT%H%M%SZ}-{digest}"
            for second in range(60)
        ]
        for path in taken:
            path.mkdir(exist_ok=True)
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 2
    assert "is already there" in done.err
    assert "next:" in done.err
    assert not any(list(path.iterdir()) for path in taken if path != first)


@pytest.mark.parametrize(
    ("toy_table", "problem"),
    [
        ({"twice": True}, "second: task letter/0 has 2 rows, planned 1"),
        ({"stranger": True}, "second: task stranger/0 was not planned"),
        (
            {"aside": " Be kind."},
            "second: task letter/0 was asked with another prompt than the taskset makes",
        ),
    ],
)
def test_rows_that_nobody_planned_fail_the_run(
    toy: Toy, runs: Path, toy_table: dict[str, Any], problem: str
) -> None:
    with StandIn() as server, toy.entry("pair", "second", toy_table, size=2):
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 5
    assert problem in done.json["problems"]
    assert done.json["counts"]["planned"] == 4
    assert add_up(done.json["counts"])


def test_an_evaluator_that_ends_badly_is_noted_and_its_missing_rows_are_counted(toy: Toy, runs: Path) -> None:
    table = {"exit_code": 3, "say": "no room"}
    with StandIn() as server, toy.entry("pair", "second", table, size=2):
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 0
    assert done.json["notes"] == ["second: the evaluator ended with exit code 3: no room"]
    with StandIn() as server, toy.entry("pair", "second", {"unknown_table": 1}, size=2):
        path = toy.root / "eval/evaluators/toy/.venv/bin/vf-eval"
        before = path.read_bytes()
        path.write_text("#!/bin/sh\necho cannot start >&2\nexit 7\n")
        try:
            done = toy.run(*other(server, runs, "second"))
        finally:
            path.write_bytes(before)
    assert done.code == 5
    assert done.json["counts"]["missing"] == 4
    assert done.json["notes"] == ["second: the evaluator ended with exit code 7: cannot start"]


def test_an_evaluator_that_ends_well_but_asked_less_than_was_planned_fails_the_run(
    toy: Toy, runs: Path
) -> None:
    with StandIn() as server, toy.entry("pair", "second", {"leaves_out": 1}, size=2):
        done = toy.run(*other(server, runs, "second"))
    assert (done.code, done.json["status"]) == (5, "failed")
    said = "second: the evaluator ended well, but its records lack 1 of 4 rows"
    assert done.json["problems"] == [said]
    assert done.json["counts"]["missing"] == 1
    assert "second: 3 of 4 tasks in the records" in done.err
    with StandIn() as server, toy.entry("pair", "second", {"leaves_out": 1, "exit_code": 3}, size=2):
        done = toy.run(*other(server, runs, "second"))
    assert (done.code, done.json["status"], done.json["problems"]) == (4, "partial", [])


def test_an_evaluator_that_cannot_be_started_is_not_said_to_have_ended_well(toy: Toy, runs: Path) -> None:
    program = toy.root / "eval/evaluators/toy/.venv/bin/vf-eval"
    program.chmod(0o644)
    try:
        done = toy.run("run", "toy", "--runs", runs, "--json")
    finally:
        program.chmod(0o755)
    assert done.code == 5, done.err
    (problem,) = done.json["problems"]
    assert problem.startswith("count: the evaluator cannot be run: ")
    state = json.loads((Path(done.json["run_dir"]) / "state.json").read_text())
    assert state["entries"][0]["native_exit_code"] is None


def test_a_torn_last_line_is_no_row(toy: Toy, runs: Path) -> None:
    with StandIn() as server, toy.entry("pair", "second", {"tail": '{"task": {"da'}, size=2):
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 0, done.err
    assert done.json["counts"]["scored"] == 4


def test_a_record_that_cannot_be_read_fails_the_run_and_its_state_says_so(toy: Toy, runs: Path) -> None:
    with StandIn() as server, toy.entry("pair", "second", {"tail": "this is no JSON\n"}, size=2):
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 5
    assert "traces.jsonl line 5 is not a row" in done.err
    assert done.json["status"] == "error"
    status = toy.run("status", done.run, "--json")
    assert (status.code, status.json["status"]) == (5, "failed")
    assert "line 5 is not a row" in status.json["error"]


def test_a_taskset_that_refuses_its_configuration_ends_the_run_before_any_request(
    toy: Toy, runs: Path
) -> None:
    with StandIn() as server, toy.entry("pair", "second", {"misdescribed": "no such family"}, size=2):
        done = toy.run(*other(server, runs, "second"))
        assert done.code == 2
        assert server.requests == []
    assert "no such family" in done.err
    assert toy.run("status", done.run, "--json").json["status"] == "failed"


def test_an_entry_that_yields_another_number_of_tasks_is_refused(toy: Toy, runs: Path) -> None:
    with StandIn() as server, toy.entry("pair", "second", {}, size=3):
        done = toy.run(*other(server, runs, "second"))
    assert done.code == 2
    assert 'entry "second" yields 6 tasks, expected 4' in done.err


def test_a_server_that_does_not_start_is_told_with_its_last_words(toy: Toy, runs: Path) -> None:
    with toy.faults(refuses="port 1 is in use"):
        done = toy.run("run", "toy", "--runs", runs, "--json")
    assert done.code == 3
    assert "the server ended with exit code 3 before it was ready" in done.err
    assert "port 1 is in use" in done.err
    assert toy.run("status", done.run, "--json").code == 3
    assert processes(done.run.name) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, as root may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"no tmpfs can be mounted here: {done.stderr}", pytrace=False)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(ballast: Path) -> None:
    """Write until the file system holds no more."""
    written = 1
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while written:
            written = file.write(bytes(4096))


def test_a_full_disk_ends_the_run_and_what_was_written_stays_readable(toy: Toy, small_disk: Path) -> None:
    ballast = small_disk / "ballast"

    def reply(number: int, body: dict[str, Any]) -> Reply:
        if number == 5:
            fill(ballast)
        return Reply(delay_s=0.3)

    with StandIn(reply=reply) as server:
        done = toy.run(*other(server, small_disk, "first"))
    assert done.code == 5
    assert "the disk is full" in done.err
    assert re.search(r"next: .*df -h", done.err)
    assert done.json["exit_code"] == 5
    assert json.loads((done.run / "state.json").read_text())["profile"] == "pair"
    assert json.loads((done.run / "resolved.json").read_text())["profile"] == "pair"
    status = toy.run("status", done.run, "--json")
    assert (status.code, status.json["status"]) == (5, "died")
    ballast.unlink()
    summary = toy.run("summarize", done.run, "--json")
    assert summary.code == 5
    assert summary.json["counts"]["planned"] == 8
    assert summary.json["counts"]["scored"] >= 1
    assert processes(done.run.name) == []


def test_a_full_disk_at_the_start_is_told_before_anything_is_asked(toy: Toy, small_disk: Path) -> None:
    fill(small_disk / "ballast")
    with StandIn() as server:
        done = toy.run(*other(server, small_disk, "first"))
        assert server.requests == []
    assert done.code == 5
    assert "the disk is full" in done.err


def test_nothing_of_a_run_is_left_in_the_private_folder(toy: Toy, runs: Path) -> None:
    done: Done = toy.run("run", "toy", "--runs", runs, "--json")
    assert done.code == 0
    assert not (toy.root / ".assay/private" / Path(done.json["run_dir"]).name).exists()
    assert processes(Path(done.json["run_dir"]).name) == []
