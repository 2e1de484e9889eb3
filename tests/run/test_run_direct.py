"""The direct lane as a user runs it, cut short: its records are scored, and audited from the run alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.files import read_jsonl
from assay.reproduce import records
from assay.view.open import open_run
from pinned.site import Site
from standin import Reply, StandIn
from tests.coordinator.suites import write
from tests.profiles.short_pins import Cut, short

pytestmark = pytest.mark.slow

MODEL = "qwen3.8-27b"
KEY = "canary-5e0c1d7a92"
REQUESTS = "requests.json"
CUTS = {"direct-smoke": {"mrcr-64k": Cut(1), "graphwalks-bfs": Cut(2)}}


def nothing(number: int, body: dict[str, Any]) -> Reply:
    """The answer of who found no node."""
    return Reply(text="Final Answer: []")


@pytest.fixture(scope="module")
def ran(pinned_direct: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The run directory of two entries, and the pin set that it was made under."""
    folder = tmp_path_factory.mktemp("direct")
    key, runs = folder / "key", folder / "runs"
    key.touch(mode=0o600)
    key.write_text(KEY)
    runs.mkdir()
    with (
        StandIn(reply=nothing, key=KEY, model=MODEL) as server,
        short(CUTS, {"sampling": {"max_tokens": 24}}) as pins,
    ):
        words = ("direct-smoke", "--base-url", server.base_url, "--runs", runs, "--pins", pins, "--json")
        done = pinned_direct.run("run", *words, QWEN_API_KEY_FILE=str(key))
        assert done.returncode == 0, done.stderr
        (folder / REQUESTS).write_text(json.dumps(server.requests))
        yield Path(json.loads(done.stdout.splitlines()[-1])["run_dir"]), pins


@pytest.mark.long
def test_an_entry_of_the_direct_lane_is_a_suites_job(pinned_direct: Site, tmp_path: Path) -> None:
    runs, key = tmp_path / "runs", tmp_path / "key"
    runs.mkdir()
    key.touch(mode=0o600)
    key.write_text(KEY)
    entry = {"backend": "verifiers", "dataset": "direct-smoke/graphwalks-bfs", "target": "there"}
    job = {"id": "walks", "limit": 1, "generation": {"max_tokens": 9, "top_k": 3}, **entry}
    with StandIn(reply=nothing, key=KEY, model=MODEL) as server, short(CUTS, {"sampling": {}}) as pins:
        target = {"base_url": server.base_url, "model": MODEL, "max_concurrency": 1, "key_file": str(key)}
        suite = write(tmp_path / "direct.toml", {"there": target}, [job])
        done = pinned_direct.run("run", "--suite", suite, "--runs", runs, "--pins", pins, "--json")
        assert done.returncode == 0, done.stderr
        (request,) = server.requests
        run = Path(json.loads(done.stdout.splitlines()[-1])["run_dir"])
        (inner,) = (path.parent for path in run.glob("walks/attempt-1/*/summary.json"))
        assert list(audited(pinned_direct, inner, pins)) == ["pins"]
    assert (request["max_completion_tokens"], request["top_k"]) == (9, 3)
    (row,) = read_jsonl(run / "samples.jsonl")
    assert (row["entry"], row["status"], row["rewards"]["reward"]) == ("walks", "scored", row["reward"])


def audited(site: Site, run: Path, pins: Path) -> dict[str, list[str]]:
    """What failed in the audit, with its evidence."""
    done = site.run("audit", run, "--pins", pins, "--json")
    assert done.returncode == 5, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    return {item["name"]: item["evidence"] for item in answer["checks"] if item["verdict"] == "FAIL"}


def test_each_rollout_of_the_direct_lane_has_a_row(ran: tuple[Path, Path]) -> None:
    rows = list(read_jsonl(ran[0] / "samples.jsonl"))
    assert [row["entry"] for row in rows] == ["mrcr-64k", "graphwalks-bfs", "graphwalks-bfs"]
    assert {row["status"] for row in rows} == {"scored"}


def test_each_answer_of_the_direct_lane_can_be_asked_for_as_it_was(ran: tuple[Path, Path]) -> None:
    run, _ = ran
    chosen = records.choose(open_run(run), 0, 99)

    built = [json.loads(each.request.body) for each in chosen.questions]
    assert (len(built), chosen.left_out) == (3, ())
    asked = json.loads((run.parents[1] / REQUESTS).read_text())
    assert [body for body in built if body not in asked] == []
    assert {each.then.choices[0].content for each in chosen.questions} == {"Final Answer: []"}


def test_the_direct_lane_is_audited_from_the_run_alone(pinned_direct: Site, ran: tuple[Path, Path]) -> None:
    assert list(audited(pinned_direct, *ran)) == ["pins"]


def test_a_reward_changed_in_the_direct_lane_is_found(
    pinned_direct: Site, ran: tuple[Path, Path], tmp_path: Path
) -> None:
    run, pins = ran
    copy = tmp_path / run.name
    shutil.copytree(run, copy, symlinks=True)
    (record,) = copy.glob("mrcr-64k/evals/*/*/results.jsonl")
    record.write_text(re.sub(r'"reward": ?[0-9.]+', '"reward": 0.75', record.read_text(), count=1))

    found = audited(pinned_direct, copy, pins)

    assert found.keys() == {"files", "samples", "summary", "pins"}


def test_a_reward_that_its_answer_did_not_earn_is_found_by_scoring_the_direct_lane_again(
    pinned_direct: Site, ran: tuple[Path, Path], tmp_path: Path
) -> None:
    run, pins = ran
    copy = tmp_path / run.name
    shutil.copytree(run, copy, symlinks=True)
    (record,) = copy.glob("mrcr-64k/evals/*/*/results.jsonl")
    (row,) = (json.loads(line) for line in record.read_text("utf-8").splitlines())
    row["reward"] = row["similarity"] = row["metrics"]["similarity"] = 0.75
    record.write_text(json.dumps(row) + "\n", "utf-8")

    done = pinned_direct.run("audit", copy, "--rescore", "--pins", pins, "--json")

    checks = {item["name"]: item for item in json.loads(done.stdout.splitlines()[-1])["checks"]}
    place = f"{record.relative_to(copy).as_posix()} line 1"
    assert checks["rescore graphwalks-bfs"]["verdict"] == "PASS"
    assert checks["rescore mrcr-64k"]["verdict"] == "FAIL"
    assert checks["rescore mrcr-64k"]["evidence"] == [
        f"{place}: recorded reward 0.75, the scorer gives 0.0",
        f"{place}: recorded similarity 0.75, the scorer gives 0.0",
    ]
