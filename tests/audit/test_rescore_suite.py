"""Scoring a suite's answers again: an honest run agrees, and a liar's is found whatever he resealed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from altered import Altered

from assay.audit.rescore import rescore
from tests.coordinator.suites import NOBODY, quiet, write
from toy_checkout import Toy

RECORDS = "quiet/attempt-1/records.jsonl"


@pytest.fixture(scope="module")
def ran(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two jobs that ask nobody."""
    folder = tmp_path_factory.mktemp("rescored")
    suite = write(folder / "two.toml", NOBODY, [quiet(wrong_every=3), quiet("other")])
    done = toy.run("run", "--suite", suite, "--runs", folder, "--json")
    assert done.code == 0, done.err
    return Path(done.json["run_dir"])


@pytest.fixture
def changed(ran: Path, tmp_path: Path) -> Altered:
    """A copy of it, for one test to change."""
    run = tmp_path / ran.name
    shutil.copytree(ran, run)
    return Altered(run)


def verdicts(run: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The checks by name."""
    return {check.name: (check.verdict, check.evidence) for check in rescore(run)}


def test_an_honest_run_scores_as_it_did_and_stays_the_bytes_that_it_was(ran: Path) -> None:
    before = {path: path.read_bytes() for path in ran.rglob("*") if path.is_file()}
    agreed = ("PASS", ("6 of 6 rewards are what the scorer of mock gives now",))
    assert verdicts(ran) == {"rescore quiet": agreed, "rescore other": agreed}
    assert {path: path.read_bytes() for path in ran.rglob("*") if path.is_file()} == before


def test_a_changed_reward_of_a_kept_answer_is_found_in_its_job_alone(changed: Altered) -> None:
    changed.lines(RECORDS, lambda lines: lines[2].update(right=True))
    changed.reseal()
    found = verdicts(changed.run)
    assert found["rescore other"][0] == "PASS"
    assert found["rescore quiet"][0] == "FAIL"
    assert f"{RECORDS} line 3 (task 2, rollout 0): recorded reward 1.0" in found["rescore quiet"][1][0]


def test_a_changed_answer_with_its_kept_reward_is_found(changed: Altered) -> None:
    changed.lines(RECORDS, lambda lines: lines[4].update(text="42"))
    changed.reseal()
    assert verdicts(changed.run)["rescore quiet"] == ("FAIL", (f"{RECORDS} line 5: not the rule's answer",))


def test_a_job_whose_records_are_gone_is_unknown_and_says_so(changed: Altered) -> None:
    shutil.rmtree(changed.run / "quiet")
    verdict, (said,) = verdicts(changed.run)["rescore quiet"]
    assert verdict == "UNKNOWN"
    assert "the suite kept" in said


def test_a_run_that_cannot_be_read_fails_by_name(changed: Altered) -> None:
    (changed.run / "resolved.json").write_text(json.dumps({"jobs": []}))
    assert {name: verdict for name, (verdict, _) in verdicts(changed.run).items()} == {"rescore": "FAIL"}
