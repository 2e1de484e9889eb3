"""A scorer that runs what a model wrote is run again in the run's own sandbox, and there alone.

The stand-in answers with a program that solves one of the two tasks. A record that trades the programs' fates
is found, though nothing in the core can tell a right program from a wrong one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from short_pins import Cut, short

from pinned.site import Site
from standin import Reply, StandIn

pytestmark = [pytest.mark.docker, pytest.mark.slow]

MODEL = "qwen3.8-27b"
KEY = "canary-51c8e0d2f7"
RECORD = "livecodebench/traces.jsonl"
TIMES = 36
ASKED = f"Print {TIMES} times"
CUTS = {"quick": {"livecodebench": Cut(2)}}


def program(number: int, body: dict[str, Any]) -> Reply:
    """That many times what is read, whatever was asked."""
    return Reply(f"```python\nprint({TIMES} * int(input()))\n```")


def rescored(site: Site, run: Path, pins: Path) -> dict[str, Any]:
    """The check of the entry."""
    done = site.run("audit", run, "--rescore", "--pins", pins, "--json")
    checks = json.loads(done.stdout.splitlines()[-1])["checks"]
    (found,) = (check for check in checks if check["name"] == "rescore livecodebench")
    assert isinstance(found, dict)
    return found


def test_programs_are_run_again_in_the_sandbox_and_a_reward_that_one_did_not_earn_is_found(
    pinned: Site, tmp_path: Path
) -> None:
    key, runs = tmp_path / "key", tmp_path / "runs"
    key.touch(mode=0o600)
    key.write_text(KEY)
    runs.mkdir()
    with (
        StandIn(program, key=KEY, model=MODEL) as server,
        short(CUTS, {"sampling": {"max_tokens": 64}}) as pins,
    ):
        words = ("--base-url", server.base_url, "--runs", runs, "--pins", pins, "--json")
        done = pinned.run("run", "quick", "livecodebench", *words, QWEN_API_KEY_FILE=str(key))
        assert done.returncode == 0, done.stderr
        run = Path(json.loads(done.stdout.splitlines()[-1])["run_dir"])
        assert [ASKED in str(body["messages"]) for body in server.requests].count(True) == 1

        honest = rescored(pinned, run, pins)
        assert (honest["verdict"], honest["evidence"]) == (
            "PASS",
            ["2 of 2 rewards are what upstream's own replay gives now"],
        )

        liar = tmp_path / run.name
        shutil.copytree(run, liar, symlinks=True)
        lines = [json.loads(line) for line in (liar / RECORD).read_text("utf-8").splitlines()]
        given = [trace["rewards"]["passed"] for line in lines for trace in line["traces"]]
        assert sorted(reward["score"] for reward in given) == [0.0, 1.0]
        for reward in given:
            reward["score"] = 1.0
        (liar / RECORD).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

        found = rescored(pinned, liar, pins)
        assert found["verdict"] == "FAIL"
        prompts = [line["task"]["data"]["prompt"] for line in lines]
        wrong = next(number for number, prompt in enumerate(prompts, 1) if ASKED not in prompt)
        assert found["evidence"] == [
            f"{RECORD} line {wrong}: recorded {name} 1.0, the scorer gives 0.0"
            for name in ("passed", "reward")
        ]
