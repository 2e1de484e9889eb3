"""What a suite's run keeps of the evaluators' records, by the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from suites import NOBODY, Counting, asking, findings, quiet, write

from standin import Reply
from toy_checkout import Toy

pytestmark = pytest.mark.slow


class Ill(Counting):
    """A server that fails one question until it is well."""

    well = False

    def _answer(self, number: int, body: dict[str, Any]) -> Reply:
        answer = super()._answer(number, body)
        sick = not self.well and "Item 2:" in json.dumps(body["messages"])
        return Reply(status=500) if sick else answer


def jobs_of(run: Path) -> dict[str, Any]:
    return {job["job"]: job for job in json.loads((run / "summary.json").read_bytes())["jobs"]}


@pytest.mark.parametrize("policy", ["errors", "none"])
def test_records_go_when_they_are_counted_and_a_resume_asks_only_what_had_failed(
    toy: Toy, runs: Path, tmp_path: Path, policy: str
) -> None:
    with Ill() as server:
        target = server.target(2, request={"retries": 0})
        suite = write(
            tmp_path / "small.toml",
            {**NOBODY, "local": target},
            [quiet(wrong_every=2), asking()],
            retention=policy,
        )
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
        assert done.code == 4, done.err
        run = Path(done.json["run_dir"])
        left = {path.name for path in (run / "asking").rglob("*")} if (run / "asking").exists() else set()
        assert left == ({"retained.jsonl"} if policy == "errors" else set())
        assert (run / "answers/asking.jsonl").is_file(), "a resume wants what was answered"
        assert not (run / "quiet/attempt-1").exists()
        kept = jobs_of(run)["asking"]["retained"]
        assert (kept["acted"], kept["rows"], kept["kept_rows"]) == (True, 1, int(policy == "errors"))
        assert jobs_of(run)["quiet"]["counts"]["completed"] == 6
        told = toy.run("summarize", run, "--json")
        assert told.code == 4
        audit = toy.run("audit", run, "--json")
        assert audit.code == 0, audit.out
        server.well = True
        before = sum(server.asked.values())
        again = toy.run("resume", run, "--json")
        assert again.code == 0, again.err
        assert sum(server.asked.values()) == before + 1
        assert not (run / "answers/asking.jsonl").exists()
        undisturbed = toy.run("run", "--suite", suite, "--runs", runs, "--json")
        assert undisturbed.code == 0
    assert findings(run) == findings(Path(undisturbed.json["run_dir"]))
    assert toy.run("audit", run).code == 0
