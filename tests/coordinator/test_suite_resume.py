"""`assay resume`: goes on only where everything that decides a result is as it was, and repeats nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from suites import NOBODY, Counting, asking, quiet, write

from assay.gateway.journal import Journal
from assay.gateway.message import Request
from toy_checkout import WAIT_S, Toy, processes, until

pytestmark = pytest.mark.slow

FULL_DISK = Path(__file__).with_name("full_disk.py")


def digests(run: Path) -> dict[str, bytes]:
    """Every file of a run but the lock, which says who looked last."""
    found = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "lock")
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in found}


@contextmanager
def replaced(path: Path, old: bytes, new: bytes) -> Iterator[None]:
    """A file with other bytes while the block runs."""
    before = path.read_bytes()
    assert old in before
    path.write_bytes(before.replace(old, new, 1))
    try:
        yield
    finally:
        path.write_bytes(before)


@contextmanager
def cancelled(toy: Toy, runs: Path, suite: Path, server: Counting) -> Iterator[Path]:
    """A run that was cancelled after some answers."""
    before = len(server.requests)
    command = toy.start("run", "--suite", suite, "--runs", runs)
    run = command.run()
    until(lambda: len(server.requests) > before + 3)
    command.signal(signal.SIGINT)
    assert command.wait().code == 6
    yield run


def test_a_resume_is_refused_and_changes_nothing_when_what_decides_the_result_has_changed(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    def job(**generation: Any) -> dict[str, Any]:
        return asking(items=40) | {"generation": {"temperature": 0.5, "seed": 1, **generation}}

    path = tmp_path / "frozen.toml"
    identity = {"schema": "assay/identity/v1", "system_fingerprint": "first", "model": {"name": "a"}}
    with Counting(delay_s=0.02, identity=lambda number: identity) as server:
        target = server.target(2)
        write(path, {"local": target}, [job()])
        with cancelled(toy, runs, path, server) as run:
            before = digests(run)
            asked = len(server.requests)

            def refused(*said: str, differs: Sequence[str] = ()) -> None:
                done = toy.run("resume", run, "--json")
                assert done.code == 5, done.err
                for each in said:
                    assert each in done.json["error"]["why"], done.json["error"]
                assert digests(run) == before
                assert len(server.requests) == asked
                assert toy.run("audit", run, "--json").json["failed"] == list(differs)

            write(path, {"local": target}, [job(temperature=0.6, max_tokens=9, seed=2)])
            refused(
                "suite.jobs.asking.generation.temperature was 0.5, is 0.6",
                "suite.jobs.asking.generation.max_tokens was not there, is 9",
                "suite.jobs.asking.generation.seed was 1, is 2",
            )
            write(path, {"local": {**target, "model": "other"}}, [job()])
            refused("suite.targets.local.model")
            write(path, {"local": target}, [job(), quiet() | {"target": "local", "id": "more"}])
            refused("suite.jobs.more was not there, is there")
            write(path, {"local": target}, [job()], retention="all", heartbeat_seconds=3)
            core = toy.root / "eval/assay/backends/mock_child.py"
            with replaced(core, b'"""', b'"""Another. '):
                refused("inputs.program:mock_child was", "inputs.tree:eval/assay was", differs=["checkout"])
            identity = {**identity, "system_fingerprint": "second"}
            refused("server.local.identity.system_fingerprint was", "second")
            identity = {**identity, "system_fingerprint": "first"}
            with replaced(run / "resolved.json", b'"temperature": 0.5', b'"temperature": 0.9'):
                done = toy.run("resume", run)
                assert done.code == 5
                assert "resolved.json is not what the run began with" in done.err
            assert digests(run) == before
            link = run / "answers/aside.jsonl"
            link.symlink_to(tmp_path / "outside.jsonl")
            done = toy.run("resume", run)
            assert done.code == 5
            assert "aside.jsonl is a link to" in done.err
            assert len(server.requests) == asked
            link.unlink()
            done = toy.run("resume", run)
            assert done.code == 0, done.err
    assert sum(count - 1 for count in server.asked.values()) <= 2


def test_a_resume_repairs_torn_tails_and_notes_them(toy: Toy, runs: Path, tmp_path: Path) -> None:
    with Counting(delay_s=0.02) as server:
        suite = write(tmp_path / "torn.toml", {"local": server.target(2)}, [asking(items=40)])
        with cancelled(toy, runs, suite, server) as run:
            for name in ("events.jsonl", "answers/asking.jsonl"):
                with (run / name).open("ab") as file:
                    file.write(b'{"torn": "\xc2\x85')
            done = toy.run("resume", run)
            assert done.code == 0, done.err
            rows = [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]
    assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
    told = json.dumps([row for row in rows if "torn" in row["kind"] or "repaired" in row["kind"]])
    assert "events.jsonl" in told
    assert "asking.jsonl" in told
    assert toy.run("audit", run).code == 0


def test_answers_of_a_target_that_became_another_one_are_never_used(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    fingerprint = "first"

    def identity(number: int) -> dict[str, Any]:
        return {"schema": "assay/identity/v1", "system_fingerprint": fingerprint}

    with Counting(identity=identity) as server:
        answer = server.reply

        def turn(number: int, body: dict[str, Any]) -> Any:
            nonlocal fingerprint
            fingerprint = "second" if number == 3 else fingerprint
            return answer(number, body)

        server.reply = turn
        jobs = [asking("one"), asking("two", items=7)]
        suite = write(tmp_path / "swapped.toml", {"local": server.target(1)}, jobs)
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
        assert done.code == 5
        run = Path(done.json["run_dir"])
        assert "is not the one that the run began with" in done.out
        assert len(server.requests) == 6, "nothing more is asked of it"
        assert toy.run("resume", run).code == 5
        fingerprint = "first"
        again = toy.run("resume", run, "--json")
        assert again.code == 0, again.err
    assert len(server.requests) == 6 + 6 + 7, "the first job is asked anew"


def test_what_another_target_answered_before_a_run_was_cancelled_is_not_used_when_the_first_is_back(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    fingerprint = "first"

    def identity(number: int) -> dict[str, Any]:
        return {"schema": "assay/identity/v1", "system_fingerprint": fingerprint}

    with Counting(delay_s=0.02, identity=identity) as server:
        answer = server.reply

        def turn(number: int, body: dict[str, Any]) -> Any:
            nonlocal fingerprint
            fingerprint = "second" if number == 1 else fingerprint
            return answer(number, body)

        server.reply = turn
        suite = write(tmp_path / "turned.toml", {"local": server.target(1)}, [asking(items=40)])
        with cancelled(toy, runs, suite, server) as run:
            asked = len(server.requests)
            assert asked < 40
            told = toy.run("status", run, "--json")
            assert (told.code, told.json["status"]) == (6, "cancelled")
            assert "second" in told.json["jobs"][0]["problems"][0]
            audited = toy.run("audit", run, "--json")
            assert audited.json["failed"] == ["state"], "as the run itself says"
            fingerprint = "first"
            done = toy.run("resume", run, "--json")
    assert done.code == 0, done.err
    assert len(server.requests) == asked + 40, "nobody knows whose its answers are"


def test_two_runs_of_one_name_do_not_touch_each_other(toy: Toy, runs: Path, tmp_path: Path) -> None:
    with Counting(delay_s=0.02) as server:
        suite = write(tmp_path / "twin.toml", {"local": server.target(2)}, [asking(items=30)])
        with cancelled(toy, runs, suite, server) as run:
            copy = tmp_path / "copies" / run.name
            shutil.copytree(run, copy)
            both = [toy.start("resume", each) for each in (run, copy)]
            for command in both:
                done = command.wait()
                assert done.code == 0, done.err
    assert toy.run("audit", run).code == toy.run("audit", copy).code == 0


def test_a_job_that_was_done_is_not_started_again_whatever_retention_left_of_it(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    with Counting() as server:
        answer = server.reply
        server.reply = lambda number, body: answer(number, body)
        jobs = [quiet("kept", wrong_every=2), asking("late", items=40)]
        suite = write(tmp_path / "kept.toml", {**NOBODY, "local": server.target(2)}, jobs, retention="none")
        server.delay_s = 0.02
        with cancelled(toy, runs, suite, server) as run:
            rows = [line for line in (run / "samples.jsonl").read_bytes().splitlines() if b'"kept"' in line]
            assert len(rows) == 6
            done = toy.run("resume", run, "--json")
    assert done.code == 0, done.err
    again = [line for line in (run / "samples.jsonl").read_bytes().splitlines() if b'"kept"' in line]
    assert again == rows
    attempts = {job["id"]: job["attempt"] for job in json.loads((run / "state.json").read_bytes())["jobs"]}
    assert attempts == {"kept": 1, "late": 2}


def test_a_full_disk_pauses_the_run_with_a_clear_error_and_a_resume_goes_on(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "full"
    with Counting(delay_s=0.02) as server:
        suite = write(
            tmp_path / "paused.toml",
            {"local": server.target(2)},
            [asking(items=60), quiet() | {"target": "local"}],
        )
        command = subprocess.Popen(
            [sys.executable, FULL_DISK, flag, "run", "--suite", suite, "--runs", runs],
            cwd=toy.root,
            env=toy.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until(lambda: len(server.requests) > 5)
            flag.touch()
            _, said = command.communicate(timeout=WAIT_S)
        finally:
            command.kill()
        assert command.returncode == 5
        assert "the run is paused: the disk is full" in said
        (run,) = runs.iterdir()
        assert f"free some space, then: assay resume {run}" in said
        assert processes(run.name) == []
        asked = len(server.requests)
        assert asked < 60
        assert toy.run("status", run).code == 5
        flag.unlink()
        done = toy.run("resume", run, "--json")
    assert done.code == 0, done.err
    assert sum(count - 1 for count in server.asked.values()) <= 2
    assert toy.run("audit", run).code == 0


def test_an_input_that_changes_while_a_job_runs_fails_that_job(toy: Toy, runs: Path, tmp_path: Path) -> None:
    suite = write(tmp_path / "edited.toml", NOBODY, [quiet("first", sleep=0.2), quiet("second")])
    command = toy.start("run", "--suite", suite, "--runs", runs, "--json")
    run = command.run()
    until(lambda: (run / "first" / "attempt-1").exists())
    with replaced(toy.root / "eval/assay/names.py", b'"""', b'"""Another. '):
        until(lambda: (run / "provenance/inputs.after-first.1.json").exists())
    done = command.wait()
    assert done.code == 5
    assert "a frozen input changed during the run: inputs.tree:eval/assay was" in done.out + done.err
    verdicts = {job["id"]: job["verdict"] for job in json.loads((run / "state.json").read_bytes())["jobs"]}
    assert verdicts == {"first": "failed", "second": "done"}


def test_a_suite_that_serves_its_model_itself_is_killed_and_resumed_with_a_new_server(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    target = {"serve": "toy-model", "max_concurrency": 2}
    suite = write(tmp_path / "served.toml", {"own": target}, [asking(target="own", items=30)])
    with toy.faults(delay_s=0.1):
        command = toy.start("run", "--suite", suite, "--runs", runs)
        run = command.run()
        answers = run / "answers/asking.jsonl"
        until(lambda: answers.exists() and answers.read_bytes().count(b"\n") > 3)
        command.signal(signal.SIGKILL)
        command.wait()
        until(lambda: processes(run.name) == [])
        done = toy.run("resume", run, "--json")
    assert done.code == 0, done.err
    assert done.json["jobs"][0]["effort"]["replayed"] > 3
    assert {path.name for path in (run / "servers").iterdir()} == {"own.1.log", "own.2.log"}
    assert toy.run("audit", run, "--json").code == 0


def test_a_resume_whose_evaluator_asks_otherwise_than_before_says_so(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    async def reworded(path: Path) -> None:
        """Keep an answer once more, as the answer to a request that will not be asked again."""
        journal = Journal(path, lambda kind, fields: None)
        key = json.loads(path.read_bytes().split(b"\n")[0])["key"]
        place = journal.take(key)
        assert place is not None
        await journal.keep(Request("POST", "/v1/chat/completions", (), b"{}"), await journal.read(place))
        await journal.close()

    with Counting(delay_s=0.02) as server:
        suite = write(tmp_path / "reworded.toml", {"local": server.target(2)}, [asking(items=30)])
        with cancelled(toy, runs, suite, server) as run:
            asyncio.run(reworded(run / "answers" / "asking.jsonl"))
            assert toy.run("resume", run).code == 0
    (job,) = json.loads((run / "summary.json").read_bytes())["jobs"]
    assert [note for note in job["notes"] if note.startswith("1 answer(s) of earlier attempts were not")]
