"""The real scorers over what real evaluators saved: who changed an answer or a reward is found, by its line.

One suite asks a stand-in through EvalScope, Inspect AI and Verifiers. Nothing can be reached while it is
scored again, not even this machine: the audit runs in a network of its own, which has nothing in it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from altered import Altered

from standin import Reply, StandIn
from tests.coordinator.suites import write
from toy_checkout import ROOT

pytestmark = pytest.mark.slow

LIMIT_S = 600.0
SAID = {"0": "ANSWER: B", "1": "ANSWER: A", "2": "I would say two."}
TRACES = "thread/attempt-1/*/reasoning-gym/traces.jsonl"
TELL = (
    "import json, pathlib, sys; from assay.audit.rescore import rescore; "
    "print(json.dumps([vars(check) for check in rescore(pathlib.Path(sys.argv[1]))]))"
)


def answer(number: int, body: dict[str, Any]) -> Reply:
    """Right to the first of BFCL's triangles and to one choice; an answer in tags to everything else."""
    text = json.dumps(body["messages"])
    choice = re.search(r"(\d): 1 \+ 1", text)
    if choice:
        return Reply(SAID[choice[1]])
    if "triangle" in text:
        return Reply("[calculate_triangle_area(base=10, height=5)]")
    return Reply("<answer>3</answer>")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of three jobs."""
    folder = tmp_path_factory.mktemp("rescore")
    rows = [{"q": f"{n}: 1 + 1?", "o": ["3", "2", "4"], "a": "B"} for n in range(len(SAID))]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    columns = {"input": "q", "target": "a", "choices": "o", "scorer": "choice"}
    asked = {"target": "there", "generation": {"temperature": 0, "max_tokens": 64}}
    functions = {"subset_list": ["simple_python"], "is_fc_model": False}
    jobs: list[dict[str, Any]] = [
        {"id": "functions", "backend": "evalscope", "dataset": "bfcl_v4", "backend_args": functions},
        {
            "id": "choices",
            "backend": "inspect",
            "dataset": "json_dataset",
            "backend_args": {"file": str(folder / "rows.jsonl"), **columns},
        },
        {
            "id": "thread",
            "backend": "verifiers",
            "dataset": "demo/reasoning-gym",
            "backend_args": {"runtime": "subprocess"},
        },
    ]
    (folder / "runs").mkdir()
    with StandIn(answer) as server:
        target = {"base_url": server.base_url, "model": server.model, "max_concurrency": 4}
        limited = [{**job, **asked, "limit": 3} for job in jobs]
        suite = write(folder / "three.toml", {"there": target}, limited, max_parallel_jobs=2)
        done = command("run", "--suite", suite, "--runs", folder / "runs", "--json")
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout.splitlines()[-1])["run_dir"])


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The real command of this checkout."""
    return run([sys.executable, "-m", "assay.cli", *map(str, words)])


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def rescored(path: Path) -> dict[str, tuple[str, str]]:
    """Verdict and evidence of every check, made where there is no network."""
    done = run(["unshare", "--net", sys.executable, "-c", TELL, str(path)])
    assert done.returncode == 0, done.stderr
    return {
        check["name"]: (check["verdict"], "\n".join(check["evidence"])) for check in json.loads(done.stdout)
    }


@pytest.fixture
def changed(ran: Path, tmp_path: Path) -> Altered:
    """A copy of the run, for one test to change."""
    copy = tmp_path / ran.name
    shutil.copytree(ran, copy, symlinks=True)
    return Altered(copy)


def lines(changed: Altered, pattern: str, change: Callable[[list[Any]], object]) -> None:
    """Change the records in the one file of that pattern, in the form that its evaluator writes."""
    (path,) = changed.run.glob(pattern)
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(found)
    path.write_text("".join(json.dumps(each) + "\n" for each in found), "utf-8")


def test_whoever_changes_an_answer_a_reward_or_what_is_right_is_named_and_nobody_else(
    changed: Altered,
) -> None:
    def prediction(found: list[Any]) -> None:
        right = next(line for line in found if line["index"] == 0)
        right["model_output"]["choices"][0]["message"]["content"] = json.dumps("I do not know.")

    def review(found: list[Any]) -> None:
        wrong = next(line for line in found if line["index"] == 2)
        wrong["sample_score"]["score"]["value"]["acc"] = 1.0

    def sample(found: list[Any]) -> None:
        right = next(line["sample"] for line in found if line["sample"]["id"] == 1)
        right["output"]["choices"][0]["message"]["content"] = right["messages"][-1]["content"] = "ANSWER: C"
        wrong = next(line for line in found if line["sample"]["id"] == 2)
        wrong["numbers"]["choice"] = 1.0

    def trace(found: list[Any]) -> None:
        for each in found[0]["traces"]:
            given = each["rewards"]["answer_score"]
            given["score"] = 1.0 - given["score"]
        for task in (found[1]["task"], *(each["task"] for each in found[1]["traces"])):
            task["data"]["seed"] = 5

    lines(changed, "functions/attempt-1/predictions/model/*simple_python.jsonl", prediction)
    lines(changed, "functions/attempt-1/reviews/model/*simple_python.jsonl", review)
    lines(changed, "choices/attempt-1/samples.jsonl", sample)
    lines(changed, TRACES, trace)
    changed.reseal()
    found = rescored(changed.run)
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "rescore functions": "FAIL",
        "rescore choices": "FAIL",
        "rescore thread: reasoning-gym": "FAIL",
    }
    for name, places in (("functions", ("simple_python/0", "simple_python/2")), ("choices", ("1", "2"))):
        told = found[f"rescore {name}"][1].splitlines()
        assert {re.findall(r"\(task (.*), rollout 0\): recorded", line)[0] for line in told} == set(places)
        assert all("recorded" in line and "1.0, the scorer gives 0.0" in line for line in told)
    record = "reasoning-gym/traces.jsonl line"
    told = found["rescore thread: reasoning-gym"][1].splitlines()
    assert told[0] == f"{record} 2: its task's data are not what the taskset makes"
    assert {line.partition(": ")[0] for line in told[1:]} == {f"{record} 1"}
