"""Where each rollout has a seed of its own, the evaluator is started once for each, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from toy_checkout import ENTRY, Toy

SEEDED = """
[seeded]
description = "each rollout with a seed of its own"
evaluator = "toy"
runtimes = ["subprocess"]
serve = "toy-model"

[[seeded.entry]]
name = "count"
tasks = 6
rollouts = 3
first_seed = 7
"""


@pytest.fixture(scope="module")
def seeded(toy: Toy) -> Iterator[Toy]:
    """The toy checkout with one more profile."""
    with toy.profile(SEEDED, "count", ENTRY.format(rollouts=1, concurrent=2, size=3)):
        yield toy


def test_each_rollout_is_asked_with_its_seed_and_recorded_with_it(seeded: Toy, runs: Path) -> None:
    done = seeded.run("run", "seeded", "--runs", runs, "--json")
    assert done.code == 0, done.err
    run = Path(done.json["run_dir"])
    assert done.json["counts"]["planned"] == done.json["counts"]["scored"] == 18
    plan = json.loads((run / "resolved.json").read_text())
    assert plan["entries"][0]["seeds"] == [7, 8, 9]
    parts = sorted(path.name for path in (run / "count").iterdir())
    assert parts == ["seed-7", "seed-8", "seed-9"]
    for name in parts:
        resolved = json.loads((run / "count" / name / "configs/resolved/eval.json").read_text())
        assert resolved["sampling"]["seed"] == int(name.removeprefix("seed-"))
        assert resolved["num_rollouts"] == 1
        recorded = json.loads((run / "provenance/launch/count" / name / "command.json").read_text())
        assert "ASSAY_API_KEY" not in recorded["environment"]
        assert recorded["key_variable"] == "ASSAY_API_KEY"
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert {row["rollout"] for row in rows} == {0, 1, 2}
    state = json.loads((run / "state.json").read_text())
    assert state["entries"][0]["finished"] == 18


@pytest.mark.parametrize(
    ("rollouts", "said"), [(2, "asks for 2 rollouts, expected 1"), (3, "asks for 3 rollouts, expected 1")]
)
def test_a_seeded_entry_that_repeats_by_itself_is_refused(
    seeded: Toy, runs: Path, rollouts: int, said: str
) -> None:
    with seeded.entry("seeded", "count", {}, rollouts=rollouts):
        done = seeded.run("run", "seeded", "--runs", runs, "--json")
    assert done.code == 2, done.err
    assert said in done.err
    assert list(runs.iterdir()) == []


def test_a_plan_whose_seeds_are_not_one_a_rollout_is_refused(seeded: Toy, runs: Path, tmp_path: Path) -> None:
    done = seeded.run("run", "seeded", "--runs", runs, "--json")
    plan = json.loads((Path(done.json["run_dir"]) / "resolved.json").read_text())
    for seeds in ([7, 8], [7, 7, 8]):
        plan["entries"][0]["seeds"] = seeds
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan))
        done = seeded.run("run", path, "--runs", runs, "--json")
        assert done.code == 2
        assert "2 seeds for 3 rollouts of count" in done.err
