"""`assay run --suite` with the mock backend, by the real command: what is asked, recorded and refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from suites import NOBODY, Counting, asking, quiet, write

from assay.audit.suite_rules import RULES
from standin import Reply
from toy_checkout import Toy, processes, until

pytestmark = pytest.mark.slow


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]


def kinds(run: Path) -> list[str]:
    return [row["kind"] for row in events(run)]


def state(run: Path) -> dict[str, Any]:
    found = json.loads((run / "state.json").read_bytes())
    assert isinstance(found, dict)
    return found


def job_state(run: Path, name: str) -> dict[str, Any]:
    return next(job for job in state(run)["jobs"] if job["id"] == name)


def test_a_suite_runs_from_its_file_to_an_audited_record(toy: Toy, runs: Path, tmp_path: Path) -> None:
    with Counting() as server:
        suite = write(
            tmp_path / "small.toml",
            {**NOBODY, "local": server.target(3)},
            [quiet("one", wrong_every=3), asking("two") | {"repeats": 2}],
            max_parallel_jobs=2,
        )
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
    assert done.code == 0, done.err
    run = Path(done.json["run_dir"])
    assert done.json["status"] == "done"
    assert len(server.requests) == 12
    assert server.most_in_flight <= 3
    there = {path.name for path in run.iterdir()}
    assert there >= {
        *("resolved.json", "state.json", "lock", "events.jsonl", "run.log", "provenance", "answers"),
        *("samples.jsonl", "summary.json", "summary.md", "manifest.json", "one", "two"),
    }
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_bytes().splitlines()]
    assert [row["entry"] for row in rows] == ["one"] * 6 + ["two"] * 12
    assert {row["status"] for row in rows} == {"scored"}
    assert kinds(run)[0] == "run-started"
    assert kinds(run)[-1] == "run-ended"
    assert (run / "provenance/suite.toml").read_bytes() == suite.read_bytes()
    assert {path.name for path in (run / "provenance/server").iterdir()} == {
        *("first.local.json", "two.1.before.json", "two.1.after.json"),
    }
    assert json.loads((run / "provenance/worktree.json").read_text())["clean"] is True
    for verb, code in (("status", 0), ("summarize", 0), ("audit", 0)):
        told = toy.run(verb, run, "--json")
        assert told.code == code, told.out + told.err
    verdicts = {check["name"]: check["verdict"] for check in told.json["checks"]}
    assert list(verdicts) == [rule.name for rule in RULES]
    unknown = {name for name, verdict in verdicts.items() if verdict == "UNKNOWN"}
    assert unknown == {"signature", "statement", "targets"}
    again = toy.run("resume", run, "--json")
    assert again.code == 0
    assert "nothing is left to be asked" in again.err
    assert toy.run("audit", run).code == 0


def test_the_audit_of_a_suites_run_finds_what_was_altered(toy: Toy, runs: Path, tmp_path: Path) -> None:
    suite = write(tmp_path / "small.toml", NOBODY, [quiet(wrong_every=2)])
    run = toy.run("run", "--suite", suite, "--runs", runs).run

    def failed() -> set[str]:
        found = toy.run("audit", run, "--json")
        assert found.code == (5 if found.json["failed"] else 0)
        return set(found.json["failed"])

    assert failed() == set()
    for name, old, new, checks in (
        ("samples.jsonl", b'"reward":0.0', b'"reward":1.0', {"files", "rows"}),
        ("summary.json", b'"scored": 6', b'"scored": 7', {"files", "summary"}),
        ("events.jsonl", b'{"n":2,', b'{"n":3,', {"files", "events"}),
        ("resolved.json", b'"limit": null', b'"limit": 7', {"files", "configuration"}),
    ):
        path = run / name
        before = path.read_bytes()
        assert old in before, name
        path.write_bytes(before.replace(old, new, 1))
        assert failed() >= checks, name
        path.write_bytes(before)
    assert failed() == set()


def test_one_job_that_fails_stops_no_other_and_reports_what_finished(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    suite = write(tmp_path / "mixed.toml", NOBODY, [quiet("broken", fail_at=4, items=8), quiet("whole")])
    done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
    assert done.code == 5
    run = Path(done.json["run_dir"])
    jobs = {job["job"]: job for job in done.json["jobs"]}
    assert (jobs["broken"]["status"], jobs["whole"]["status"]) == ("failed", "done")
    assert jobs["broken"]["counts"]["scored"] == 4
    assert jobs["broken"]["counts"]["missing"] == 4
    assert job_state(run, "broken")["done"] == 4
    told = toy.run("status", run, "--json")
    assert (told.code, told.json["status"]) == (5, "failed")
    assert "next: assay resume" in told.out


def test_requests_that_fail_make_a_partial_run_and_a_resume_asks_only_them_again(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    with Counting() as server:
        answer = server.reply
        server.reply = lambda number, body: Reply(status=500) if number in (2, 4) else answer(number, body)
        target = server.target(1, request={"retries": 0})
        suite = write(tmp_path / "flaky.toml", {"local": target}, [asking()])
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
        assert done.code == 4, done.err
        run = Path(done.json["run_dir"])
        assert toy.run("status", run).code == 4
        assert len(server.requests) == 6
        again = toy.run("resume", run, "--json")
    assert again.code == 0, again.err
    assert len(server.requests) == 8
    assert job_state(run, "asking")["attempt"] == 2
    assert toy.run("audit", run).code == 0


def test_a_request_that_is_refused_for_good_costs_its_row_alone(toy: Toy, runs: Path, tmp_path: Path) -> None:
    with Counting() as server:
        answer = server.reply
        server.reply = lambda number, body: Reply(status=400) if number == 3 else answer(number, body)
        suite = write(tmp_path / "overlong.toml", {"local": server.target(1)}, [asking()])
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
    assert done.code == 4, done.err
    counts = done.json["jobs"][0]["counts"]
    assert (counts["planned"], counts["scored"], counts["failed"], counts["missing"]) == (6, 5, 1, 0)


def test_a_suite_that_cannot_be_run_makes_no_directory(toy: Toy, runs: Path, tmp_path: Path) -> None:
    unknown = quiet() | {"backend": "mok"}
    suite = write(tmp_path / "unknown.toml", NOBODY, [unknown])
    for reference, why in ((suite, 'no backend "mok"'), ("nothing", 'no suite "nothing"')):
        done = toy.run("run", "--suite", reference, "--runs", runs)
        assert done.code == 2
        assert why in done.err
    both = toy.run("run", "toy", "--suite", suite, "--runs", runs)
    assert both.code == 2
    assert "PROFILE cannot be combined with --suite" in both.err
    assert list(runs.iterdir()) == []


def test_inputs_and_worktree_are_recorded_as_they_were_before_the_first_request(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    seen: list[set[str]] = []
    untracked = toy.root / "eval/assay/untracked.txt"
    with Counting() as server:
        answer = server.reply

        def look(number: int, body: dict[str, Any]) -> Reply:
            (run,) = runs.iterdir()
            seen.append({path.name for path in (run / "provenance").iterdir()})
            untracked.unlink(missing_ok=True)
            return answer(number, body)

        server.reply = look
        suite = write(tmp_path / "dirty.toml", {"local": server.target(1)}, [asking()])
        untracked.write_text("not committed")
        try:
            done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
        finally:
            untracked.unlink(missing_ok=True)
    assert seen[0] >= {"inputs.before.json", "worktree.json", "suite.toml", "source.json", "environment.json"}
    worktree = json.loads((Path(done.json["run_dir"]) / "provenance/worktree.json").read_text())
    assert (worktree["clean"], worktree["changed"]) == (False, ["eval/assay/untracked.txt"])
    assert done.code == 5, "the core's tree was another one when the job had ended"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_keeps_what_finished_and_starts_nothing_more(
    toy: Toy, runs: Path, tmp_path: Path, number: int
) -> None:
    with Counting(delay_s=0.03) as server:
        jobs = [asking("first", items=40), asking("second", items=40) | {"generation": {"seed": 2}}]
        suite = write(tmp_path / "long.toml", {"local": server.target(2)}, jobs)
        command = toy.start("run", "--suite", suite, "--runs", runs, "--json")
        run = command.run()
        until(lambda: len(server.requests) > 3)
        command.signal(number)
        done = command.wait()
        assert done.code == 6, done.err
        assert "what has finished is kept" in done.err
        asked = len(server.requests)
        assert done.json["status"] == "cancelled"
        assert processes(run.name) == []
        assert job_state(run, "second")["attempt"] == 0
        assert (toy.run("status", run).code, toy.run("summarize", run).code) == (6, 6)
        assert toy.run("audit", run).code == 0
        again = toy.run("resume", run, "--json")
    assert again.code == 0, again.err
    assert asked < 80
    assert set(server.asked.values()) <= {1, 2}
    assert sum(count - 1 for count in server.asked.values()) <= 2, "at most what was in flight is asked again"


def test_a_second_signal_does_not_wait_and_the_record_is_whole_all_the_same(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    with Counting(delay_s=20) as server:
        suite = write(tmp_path / "slow.toml", {"local": server.target(2)}, [asking()])
        command = toy.start("run", "--suite", suite, "--runs", runs, "--json")
        run = command.run()
        until(lambda: len(server.requests) == 2)
        for _ in range(3):
            command.signal(signal.SIGINT)
        done = command.wait()
    assert done.code == 6, done.err
    assert (run / "manifest.json").exists()
    assert toy.run("audit", run).code == 0


def test_status_tells_a_live_run_from_a_dead_one_and_from_none(toy: Toy, runs: Path, tmp_path: Path) -> None:
    suite = write(tmp_path / "live.toml", NOBODY, [quiet(items=2000, sleep=0.05)])
    command = toy.start("run", "--suite", suite, "--runs", runs)
    run = command.run()
    until(lambda: job_state(run, "quiet")["done"] > 0)
    live = toy.run("status", run, "--json")
    assert (live.code, live.json["status"]) == (0, "live")
    refused = toy.run("resume", run)
    assert refused.code == 5
    assert "is being written by process" in refused.err
    command.signal(signal.SIGKILL)
    command.wait()
    dead = toy.run("status", run, "--json")
    assert (dead.code, dead.json["status"]) == (5, "died")
    assert f"next: assay resume {run}" in dead.out
    until(lambda: processes(run.name) == [])
    holder = json.loads((run / "lock").read_text())
    holder["host"], holder["owner"]["boot_id"] = "far-away", "another"
    (run / "lock").write_text(json.dumps(holder))
    foreign = toy.run("status", run, "--json")
    assert (foreign.code, foreign.json["status"]) == (5, "foreign")
    assert "far-away" in foreign.out
    missing = toy.run("status", runs / "nothing")
    assert missing.code == 5
    assert "is not a run" in missing.err
    for verb in ("resume", "summarize", "audit"):
        assert toy.run(verb, runs / "nothing").code == 5, verb


def test_a_budget_ends_a_job_as_partial_and_a_resume_asks_no_more(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    with Counting() as server:
        job = asking(items=30) | {"budget": {"tokens": 50}}
        suite = write(tmp_path / "bounded.toml", {"local": server.target(1)}, [job])
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
        assert done.code == 4, done.err
        run = Path(done.json["run_dir"])
        asked = len(server.requests)
        assert 5 <= asked <= 7
        assert job_state(run, "asking")["budget"] == "tokens"
        told = toy.run("status", run)
        assert "a new run, with another budget" in told.out
        assert "next: assay resume" not in told.out, "it would ask nothing"
        again = toy.run("resume", run, "--json")
        assert again.code == 4, again.err
        assert len(server.requests) == asked
    assert "budget-reached" in kinds(run)


def test_a_key_is_in_no_file_of_a_run_whatever_the_target_says(toy: Toy, runs: Path, tmp_path: Path) -> None:
    canary = "canary-7d1f0c/55+e2"
    with Counting(
        key=canary, identity=lambda number: {"schema": "assay/identity/v1", "told": canary}
    ) as server:
        suite = write(
            tmp_path / "keyed.toml", {"local": server.target(2, api_key_env="CANARY_KEY")}, [asking()]
        )
        missing = toy.run("run", "--suite", suite, "--runs", runs)
        assert missing.code == 2
        assert "CANARY_KEY is not set" in missing.err
        assert list(runs.iterdir()) == []
        done = toy.run("run", "--suite", suite, "--runs", runs, CANARY_KEY=canary)
        assert done.code == 0, done.err
        wrong = toy.run("run", "--suite", suite, "--runs", runs, CANARY_KEY="another-key-entirely")
    assert wrong.code == 3
    for text in (done.out, done.err, wrong.out, wrong.err):
        assert canary not in text
    for path in runs.rglob("*"):
        assert not path.is_file() or canary.encode() not in path.read_bytes(), path


def test_a_target_that_is_not_there_ends_the_run_before_anything_is_asked_and_a_resume_begins_it(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    with Counting() as server:
        target = server.target(2)
        address = server.server.server_address
    suite = write(tmp_path / "absent.toml", {"local": target}, [asking()])
    done = toy.run("run", "--suite", suite, "--runs", runs)
    assert done.code == 3, done.err
    (run,) = runs.iterdir()
    told = toy.run("status", run)
    assert told.code == 3
    with Counting(address=("127.0.0.1", int(address[1]))) as server:
        again = toy.run("resume", run, "--json")
    assert again.code == 0, again.err
    assert toy.run("audit", run).code == 0
