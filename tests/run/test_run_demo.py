"""`demo` as a newcomer runs it: the real model, the real evaluator, real containers, and the audit of it.

What the model answers is not asserted here, since another instruction set may round otherwise; that the same
answers come again is. One whole run is minutes, so the tests share it.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from assay.files import read_jsonl
from toy_checkout import ROOT

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SCRIPTS = ROOT / "eval/scripts"
WAIT_S = 1800.0
TASKS = 80
FAMILIES = 10


@dataclass(frozen=True)
class Demo:
    """A finished run: its answer to `--json`, its directory, and all it printed."""

    answer: dict[str, Any]
    run: Path
    printed: str

    @property
    def answers(self) -> dict[str, str]:
        """The digest of each task's answer."""
        return {row["task_key"]: row["answer_digest"] for row in read_jsonl(self.run / "samples.jsonl")}


def script(name: str, *words: str | Path) -> tuple[int, dict[str, Any], str]:
    """Run a script with `--json`: exit code, JSON object, and all it printed."""
    command = [SCRIPTS / name, *words, "--json"]
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


def demo(runs: Path, *words: str) -> Demo:
    """Run `demo` and require exit code 0."""
    code, answer, printed = script("run", "demo", "--runs", runs, *words)
    assert code == 0, printed
    return Demo(answer, Path(answer["run_dir"]), printed)


@pytest.fixture(scope="module")
def in_containers(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return demo(tmp_path_factory.mktemp("containers"))


def test_every_task_is_answered_in_a_container_with_its_network_cut(in_containers: Demo) -> None:
    counts = in_containers.answer["counts"]
    assert in_containers.answer["runtime"] == "docker"
    assert in_containers.answer["egress"] == "cut"
    assert counts["planned"] == TASKS
    assert counts["scored"] + counts["truncated"] == TASKS
    assert "egress: cut" in in_containers.printed


def test_each_family_stands_with_counts_interval_and_baseline(in_containers: Demo) -> None:
    scores = in_containers.answer["scores"]
    assert len(scores) == FAMILIES
    for family in scores:
        assert family["counts"]["planned"] == TASKS // FAMILIES
        assert 0.0 <= family["low"] <= family["score"] <= family["high"] <= 1.0
        assert 0.0 <= family["baseline"] <= 1.0
    assert any(family["score"] > 0 for family in scores)


def test_the_run_verifies(in_containers: Demo) -> None:
    code, answer, printed = script("audit", in_containers.run)
    assert (code, answer["status"]) == (0, "verified"), printed
    verdicts = {check["name"]: check["verdict"] for check in answer["checks"]}
    assert verdicts["isolation"] == "PASS"
    assert verdicts["server"] == "PASS"
    code, answer, _ = script("audit", in_containers.run, "--strict")
    assert code == 5
    assert "signature" in answer["failed"]


def test_the_upstream_reward_is_ours(in_containers: Demo) -> None:
    code, answer, printed = script("reward", in_containers.run)
    assert code == 0, printed
    assert answer["entries"]["reasoning-gym"]["agree"] is True


def test_no_container_is_left(in_containers: Demo) -> None:
    client = docker.from_env()
    try:
        label = f"verifiers.run={in_containers.run.name}"
        assert client.containers.list(all=True, filters={"label": label}) == []
    finally:
        client.close()


@pytest.mark.long
def test_answers_are_the_same_bytes_on_the_host_and_at_any_concurrency(
    in_containers: Demo, tmp_path: Path
) -> None:
    alone = demo(tmp_path, "--runtime", "subprocess", "--concurrency", "1")
    crowded = demo(tmp_path, "--runtime", "subprocess", "--concurrency", "8")
    assert "egress: not enforced" in alone.printed
    assert alone.answers == in_containers.answers
    assert crowded.answers == in_containers.answers
