"""`assay compare A B` by the real command over real runs of the toy checkout, whose server a test scripts."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.compare.compare import compare
from assay.view.open import open_run
from standin import Reply, StandIn
from toy_checkout import ENTRY, Done, Toy

pytestmark = pytest.mark.slow

PROFILE = """
[many]
description = "sixty questions: a toy"
evaluator = "toy"
runtimes = ["subprocess"]

[[many.entry]]
name = "count"
tasks = 60
rollouts = 1
"""
Answer = Callable[[str, int], Reply]


def right(family: str, asked: int) -> Reply:
    return Reply(f"<answer>{asked + 1}</answer>")


def wrong_letters(family: str, asked: int) -> Reply:
    return Reply("<answer>no</answer>") if family == "letter" else right(family, asked)


def silent_letters(family: str, asked: int) -> Reply:
    return Reply(status=400) if family == "letter" else right(family, asked)


@pytest.fixture(scope="module")
def many(toy: Toy) -> Iterator[Toy]:
    """The toy checkout with a profile of sixty questions."""
    with toy.profile(PROFILE, "count", ENTRY.format(rollouts=1, concurrent=4, size=30)):
        yield toy


def run(toy: Toy, runs: Path, answer: Answer, *words: str) -> Path:
    """A run of the profile against a server that answers so."""

    def reply(number: int, body: dict[str, Any]) -> Reply:
        found = re.search(r"after (\w+) (\d+)", str(body["messages"][-1]["content"]))
        assert found is not None
        return answer(found[1], int(found[2]))

    with StandIn(reply=reply) as server:
        address = ("--base-url", server.base_url, "--model", server.model, "--runs", runs, "--json")
        return Path(toy.run("run", "many", *words, *address).json["run_dir"])


@pytest.fixture(scope="module")
def good(many: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(many, tmp_path_factory.mktemp("good"), right)


@pytest.fixture(scope="module")
def bad(many: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(many, tmp_path_factory.mktemp("bad"), wrong_letters)


def verdicts(done: Done) -> dict[str, str]:
    return {found["name"]: found["verdict"] for found in done.json["benchmarks"]}


def test_a_run_that_lost_a_family_is_worse_and_exits_so_if_asked(
    many: Toy, good: Path, bad: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for run in (good, bad) for path in run.rglob("*") if path.is_file()}
    file = tmp_path / "compared.md"
    done = many.run("compare", good, bad, "--json", "--markdown", file)
    assert (done.code, done.json["exit_code"], done.json["verdict"]) == (0, 0, "worse"), done.err
    assert verdicts(done) == {"count/letter": "worse", "count/digit": "no difference shown"}
    letter = done.json["benchmarks"][0]
    # Every third question repeats the first: thirty rollouts, and twenty questions.
    assert (letter["pairs"], letter["questions"], letter["signs"]["losses"]) == (30, 20, 20)
    assert (letter["a_score"], letter["b_score"], letter["all"]["difference"]) == (1.0, 0.0, -1.0)
    assert letter["flips_total"] == 30
    record, _, line = letter["flips"][0]["b"]["link"].rpartition(":")
    told = json.loads((bad / record).read_bytes().split(b"\n")[int(line) - 1])
    assert told["task"]["key"] == letter["flips"][0]["task_key"]
    text = file.read_text("utf-8")
    assert text.startswith("# verdict: worse\n")
    assert "count/letter: loss: letter/0, rollout 0: A 1 at count/traces.jsonl:" in text
    assert "verdict: worse" in done.err
    failed = many.run("compare", good, bad, "--fail-on", "worse")
    assert failed.code == 5
    assert failed.out.startswith("verdict: worse\n")
    turned = many.run("compare", bad, good, "--fail-on", "worse", "--json")
    assert (turned.code, turned.json["verdict"]) == (0, "better")
    assert before == {path: path.read_bytes() for path in before}
    for compared in (good, bad):
        assert many.run("audit", compared).code == 0, "a comparison writes nothing into a run"


def test_a_run_beside_itself_and_beside_an_equal_one_shows_no_difference(
    many: Toy, good: Path, runs: Path
) -> None:
    again = run(many, runs, right)
    for other in (good, again):
        done = many.run("compare", good, other, "--mde", "0.5", "--fail-on", "worse", "--json")
        assert (done.code, set(verdicts(done).values())) == (0, {"no difference shown"}), done.err
        assert [found["same"] for found in done.json["benchmarks"]] == [30, 30]
        assert done.json["accepted"] == []


def test_a_server_that_failed_is_worse_and_the_one_that_did_not_is_not_better_for_it(
    many: Toy, good: Path, runs: Path
) -> None:
    failed = run(many, runs, silent_letters)
    done = many.run("compare", good, failed, "--json")
    letter = done.json["benchmarks"][0]
    assert (letter["verdict"], letter["errors"]["b"], letter["errors"]["shifted"]) == ("worse", 30, True)
    assert "B is partial" in done.json["warnings"][0]
    back = many.run("compare", failed, good, "--json")
    assert verdicts(back)["count/letter"] == "too few samples"
    assert back.json["benchmarks"][0]["all"]["difference"] == 1.0


def test_both_answers_of_a_flip_are_there_if_asked(many: Toy, good: Path, bad: Path) -> None:
    done = many.run("compare", good, bad, "--flips", "2", "--json")
    flips = done.json["benchmarks"][0]["flips"]
    assert [flip["b"]["text"] for flip in flips] == ["<answer>no</answer>"] * 2
    assert flips[0]["a"]["text"].startswith("<answer>")
    assert "2 of 30 flips listed" in done.err


def test_other_sampling_is_refused_by_name_and_accepted_by_name(many: Toy, good: Path, runs: Path) -> None:
    longer = run(many, runs, right, "--set", "max_tokens=32")
    refused = many.run("compare", good, longer, "--json")
    assert refused.code == 2
    assert refused.json["status"] == "error"
    names = refused.json["error"]["what"].removeprefix("the runs are not alike: ").split(", ")
    assert any("max_tokens" in name for name in names)
    assert "64" in refused.json["error"]["why"]
    done = many.run("compare", good, longer, "--json", "--allow", *names)
    assert done.code == 0, done.err
    assert sorted({found["name"] for found in done.json["accepted"]}) == names
    assert "accepted difference: " in done.err


def test_fewer_tasks_are_another_set_of_tasks_until_that_is_accepted(
    many: Toy, good: Path, runs: Path
) -> None:
    some = run(many, runs, right, "--limit", "20")
    refused = many.run("compare", good, some, "--json")
    assert refused.code == 2
    assert "tasks.count" in refused.json["error"]["what"]
    assert "pairs.questions" not in refused.json["error"]["what"]
    names = refused.json["error"]["what"].removeprefix("the runs are not alike: ").split(", ")
    done = many.run("compare", good, some, "--json", "--allow", *names)
    assert done.code == 0, done.err
    (letter,) = done.json["benchmarks"]
    assert (letter["pairs"], letter["alone_a"], letter["alone_b"]) == (20, 10, 0)
    assert done.json["only_a"] == ["count/digit"]


def test_what_cannot_be_compared_is_refused(many: Toy, good: Path, tmp_path: Path) -> None:
    for words, code, said in (
        ((good, tmp_path / "gone"), 5, "is not a run directory"),
        ((good, good, "--flips", "-1"), 2, "no number of flips"),
        ((good, good, "--mde", "nan"), 2, "no difference of scores"),
        ((good, good, "--mde", "0"), 2, "no difference of scores"),
        ((good, good, "--fail-on", "better"), 2, "invalid choice"),
        ((good, good, "--markdown", good / "compared.md"), 2, "lies inside the run"),
    ):
        done = many.run("compare", *words)
        assert done.code == code, done.out + done.err
        assert said in done.err
    assert not (good / "compared.md").exists()


@pytest.mark.parametrize("field", [{"reward": 1e200}, {"line": 10**20}, {"completion_tokens": 10**20}])
def test_numbers_that_nobody_can_reckon_with_are_told(
    many: Toy, good: Path, tmp_path: Path, field: dict[str, float]
) -> None:
    copy = tmp_path / good.name
    shutil.copytree(good, copy, symlinks=True)
    first, *others = (copy / "samples.jsonl").read_bytes().splitlines(keepends=True)
    row = json.dumps({**json.loads(first), **field}).encode() + b"\n"
    (copy / "samples.jsonl").write_bytes(b"".join([row, *others]))
    done = many.run("compare", good, copy)
    assert (done.code, "cannot be compared" in done.err) == (5, True), done.err


def test_more_flips_than_there_can_be_are_all_flips(many: Toy, good: Path, bad: Path) -> None:
    every = many.run("compare", good, bad, "--flips", str(10**30), "--json").json
    assert [found["flips_total"] for found in every["benchmarks"]] == [
        len(found["flips"]) for found in every["benchmarks"]
    ]


def test_an_altered_row_that_cannot_be_read_is_told(many: Toy, good: Path, tmp_path: Path) -> None:
    copy = tmp_path / good.name
    shutil.copytree(good, copy, symlinks=True)
    samples = copy / "samples.jsonl"
    lines = samples.read_bytes().splitlines(keepends=True)
    samples.write_bytes(b"".join([*lines, lines[0]]))
    done = many.run("compare", good, copy)
    assert done.code == 5
    samples.write_bytes(b"{]\n" + b"".join(lines[1:]))
    assert many.run("compare", good, copy).code == 5


# A command in an interpreter that ends with 99 when anything makes a socket.
NO_SOCKET = """
import os, sys
sys.addaudithook(lambda event, _: os._exit(99) if event.startswith("socket.") else None)
if sys.argv[1:] == ["control"]:
    import socket
    socket.socket()
from assay.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_comparison_makes_no_socket(many: Toy, good: Path, bad: Path) -> None:
    def code(*words: str | Path) -> int:
        return many.program(sys.executable, "-c", NO_SOCKET, *words).code

    assert code("control") == 99
    assert code("compare", good, bad, "--flips", "3", "--json") == 0


def test_a_comparison_by_the_command_is_that_of_the_views(many: Toy, good: Path, bad: Path) -> None:
    told = many.run("compare", good, bad, "--json").json
    document = compare(open_run(good), open_run(bad)).model_dump(mode="json")
    assert {name: told[name] for name in document} == json.loads(json.dumps(document))
