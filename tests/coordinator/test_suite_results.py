"""What a suite's run tells of its answers, by the real command: silence and cuts are no wrong answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from suites import asking, write

from standin import Reply, StandIn
from toy_checkout import Toy

pytestmark = pytest.mark.slow

REPLIES = {
    0: Reply("", thought="Let me see."),
    1: Reply("", thought="Let me see. And then", finish_reason="length"),
    2: Reply("   "),
    3: Reply("seven"),
    4: Reply(status=500),
    5: Reply("It is", finish_reason="length"),
}


def reply(number: int, body: dict[str, Any]) -> Reply:
    found = re.search(r"Item (\d+):", json.dumps(body["messages"]))
    assert found is not None
    return REPLIES[int(found[1])]


def test_each_way_to_score_nothing_is_told_apart_and_a_failure_stays_in_the_denominator(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    with StandIn(reply) as server:
        target = {
            "base_url": server.base_url,
            "model": server.model,
            "max_concurrency": 2,
            "request": {"retries": 0},
        }
        suite = write(tmp_path / "small.toml", {"local": target}, [asking(wrong_every=1)])
        done = toy.run("run", "--suite", suite, "--runs", runs, "--json")
    assert done.code == 4, done.err
    run = Path(done.json["run_dir"])
    (job,) = json.loads((run / "summary.json").read_bytes())["jobs"]
    assert job["status"] == "partial"
    assert job["zeros"] == {"truncated": 2, "thought_only": 1, "empty": 1, "unparsed": 0, "wrong": 1}
    counts = {
        "planned": 6,
        "completed": 5,
        "scored": 3,
        "failed": 1,
        "truncated": 2,
        "missing": 0,
        "empty": 3,
    }
    assert job["counts"] | counts == job["counts"]
    assert (job["counts"]["thought_only"], job["rates"]["truncated"]) == (2, 0.4)
    assert (job["score"], job["score_ceiling"]) == (0.0, round(1 / 6, 6))
    assert "scored nothing: 2 cut by a limit, 1 silent after thinking, 1 silent, 1 wrong" in done.err
    assert [failure["rows"] for failure in job["failures"]] == [1]
    for verb, code in (("summarize", 4), ("audit", 0)):
        assert toy.run(verb, run).code == code
