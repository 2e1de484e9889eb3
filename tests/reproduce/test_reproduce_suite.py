"""`assay reproduce` of a suite's run: the kept answers' own requests, byte for byte, asked of a target."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from again import held

from standin import Reply
from tests.coordinator.suites import NOBODY, Counting, asking, quiet, write
from toy_checkout import Toy

KEY = "canary-81d2f0aa37"


@dataclass(frozen=True)
class Ran:
    """A suite's run, its two servers, and the key of the second."""

    run: Path
    first: Counting
    second: Counting
    key_file: Path

    def bodies(self, job: str) -> list[str]:
        """The digests of what a job asked, in the order of its journal."""
        lines = (self.run / "answers" / f"{job}.jsonl").read_bytes().splitlines()
        return [hashlib.sha256(json.loads(line)["request"]["body"].encode()).hexdigest() for line in lines]


@pytest.fixture(scope="module")
def ran(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("suite")
    key_file = folder / "key"
    key_file.touch(mode=0o600)
    key_file.write_text(KEY)
    with Counting() as first, Counting(key=KEY) as second:
        targets = {
            **NOBODY,
            "first": first.target(3),
            "second": second.target(2, api_key_env="SECOND_API_KEY"),
        }
        jobs = [quiet(), asking("one", "first"), asking("two", "second", items=4)]
        suite = write(folder / "both.toml", targets, jobs)
        (folder / "runs").mkdir()
        done = toy.run("run", "--suite", suite, "--runs", folder / "runs", "--json", SECOND_API_KEY=KEY)
        assert done.code == 0, done.err
        yield Ran(Path(done.json["run_dir"]), first, second, key_file)


def test_the_same_bytes_are_asked_again_and_nothing_is_written(toy: Toy, ran: Ran) -> None:
    before, count = held(ran.run), len(ran.first.requests)
    done = toy.run("reproduce", ran.run, "--target", "first", "-n", "99", "--json")
    assert done.code == 0, done.err
    assert done.json["counts"] == {"same": 6, "differs": 0, "drawn": 0, "unanswered": 0}
    assert {each["job"] for each in done.json["requests"]} == {"one"}
    assert Counter(map(str, ran.first.requests[count:])) == Counter(map(str, ran.first.requests[:count]))
    assert held(ran.run) == before


def test_only_the_named_targets_answers_are_asked_and_only_with_the_key_that_is_given(
    toy: Toy, ran: Ran
) -> None:
    done = toy.run("reproduce", ran.run, "--target", "second", "--json", SECOND_API_KEY=KEY)
    assert done.code == 2, "a run decides about no secret of this machine"
    assert "--key-file" in done.err
    words = ("--target", "second", "--key-file", ran.key_file, "-n", "2", "--json")
    done = toy.run("reproduce", ran.run, *words)
    assert done.code == 0, done.err
    assert [each["job"] for each in done.json["requests"]] == ["two", "two"]
    assert KEY not in done.out + done.err


def test_a_server_elsewhere_is_asked_what_the_target_was(toy: Toy, ran: Ran) -> None:
    def otherwise(number: int, body: dict[str, Any]) -> Reply:
        return Reply("something else")

    with Counting() as other:
        other.reply = otherwise
        words = ("--target", "first", "--base-url", other.base_url, "--model", other.model)
        done = toy.run("reproduce", ran.run, *words, "-n", "2", "--json")
    assert (done.code, done.json["counts"]["differs"]) == (5, 2)
    assert len(other.requests) == 2
    asked = {hashlib.sha256(json.dumps(body).encode()).hexdigest() for body in other.requests}
    assert asked <= set(ran.bodies("one")), "the mock's own bytes, since the model has the same name"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "does not say whom to ask"),
        (("--target", "frst"), 'did you mean "first"?'),
        (("--target", "nobody"), 'had no target "nobody"'),
    ],
)
def test_a_target_has_to_be_named(toy: Toy, ran: Ran, words: tuple[str, ...], told: str) -> None:
    done = toy.run("reproduce", ran.run, *words, "--json")
    assert done.code == 2
    assert told in done.err


def test_a_suite_that_asked_nobody_says_so(toy: Toy, runs: Path, tmp_path: Path) -> None:
    suite = write(tmp_path / "alone.toml", NOBODY, [quiet()])
    run = Path(toy.run("run", "--suite", suite, "--runs", runs, "--json").json["run_dir"])
    done = toy.run("reproduce", run, "--json")
    assert done.code == 2
    assert "asked nobody" in done.err


def copied(ran: Ran, folder: Path) -> Path:
    run = folder / ran.run.name
    shutil.copytree(ran.run, run, symlinks=True)
    return run


def test_a_kept_answer_that_was_changed_is_refused_or_found(toy: Toy, ran: Ran, tmp_path: Path) -> None:
    run = copied(ran, tmp_path)
    path = run / "answers/one.jsonl"
    whole = path.read_text("utf-8")
    path.write_text(whole.replace("answer ", "better ", 1), "utf-8")
    done = toy.run("reproduce", run, "--target", "first", "--json")
    assert done.code == 5
    assert "not as it was written" in done.err


def test_a_question_that_was_changed_under_its_key_is_refused(toy: Toy, ran: Ran, tmp_path: Path) -> None:
    run = copied(ran, tmp_path)
    path = run / "answers/one.jsonl"
    line, *rest = path.read_text("utf-8").splitlines(keepends=True)
    value = json.loads(line)
    value["request"]["body"] = value["request"]["body"].replace("content", "contents", 1)
    path.write_text(json.dumps(value) + "\n" + "".join(rest), "utf-8")
    count = len(ran.first.requests)
    done = toy.run("reproduce", run, "--target", "first", "--json")
    assert done.code == 5
    assert "another key" in done.err
    assert len(ran.first.requests) == count


def test_a_run_that_kept_no_answers_is_refused(toy: Toy, ran: Ran, tmp_path: Path) -> None:
    run = copied(ran, tmp_path)
    shutil.rmtree(run / "answers")
    done = toy.run("reproduce", run, "--target", "first", "--json")
    assert done.code == 5
    assert "retention" in done.err
