"""A suite's run, read: each job is a benchmark, with the conditions that another run must share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.view.open import open_run
from coordinator.suites import NOBODY, Counting, asking, quiet, write
from toy_checkout import Toy


def made(toy: Toy, runs: Path, file: Path) -> Path:
    """The directory of a run."""
    done = toy.run("run", "--suite", file, "--runs", runs, "--json")
    assert done.code in (0, 4), done.err
    return Path(done.json["run_dir"])


def conditions(run: Path) -> dict[str, Mapping[str, str]]:
    """Of each benchmark."""
    return {each.name: each.conditions for each in open_run(run).benchmarks()}


@pytest.mark.slow
def test_a_suite_is_read_job_by_job_and_compares_with_itself_on_another_server(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    def run(**job: Any) -> Path:
        with Counting() as server:
            target = {**server.target(3), "provenance": {"engine": "made up"}}
            jobs = [quiet("one", wrong_every=3), {**asking("two"), "repeats": 2, **job}]
            return made(toy, runs, write(tmp_path / "small.toml", {**NOBODY, "local": target}, jobs))

    first, second = run(), run()
    view = open_run(first)
    assert (view.kind, view.name, view.status) == ("suite", "small", "done")
    one, two = view.benchmarks()
    assert (one.name, one.entry, one.family, one.metric, one.binary) == ("one", "one", None, "right", True)
    assert (one.score, one.counts["planned"], one.counts["scored"]) == (pytest.approx(2 / 3, abs=1e-6), 6, 6)
    assert two.counts["planned"] == 12
    assert [row.entry for row in view.samples()] == ["one"] * 6 + ["two"] * 12
    assert conditions(first) == conditions(second)
    told = conditions(first)["two"]
    assert told["tasks.rollouts"] == "2"
    assert told["tasks.count"] == "6"
    assert told["template.ask"] == "true"
    facts = {fact.name: fact for fact in view.facts()}
    assert facts["local: engine"].basis == "claimed"
    assert not facts["server of local"].sound
    exchanges = list(view.exchanges())
    assert len(exchanges) == 18
    for row, exchange in exchanges:
        assert exchange is not None
        assert exchange.messages[0].text.startswith(f"Item {row.task_key}:")
        assert [(part.name, part.score) for part in exchange.parts] == [("right", row.reward)]
        assert exchange == view.exchange(row)
    assert exchanges[-1][1] is not None
    assert exchanges[-1][1].messages[1].text.startswith("answer ")
    third = conditions(run(generation={"temperature": 1.0, "seed": 4}))
    assert third["one"] == conditions(first)["one"]
    other = third["two"]
    assert {name for name in other if other[name] != told.get(name)} == {
        "sampling.temperature",
        "sampling.seed",
    }


@pytest.mark.slow
def test_of_removed_records_the_kept_lines_are_read(toy: Toy, runs: Path, tmp_path: Path) -> None:
    with Counting() as server:
        suite = write(
            tmp_path / "kept.toml", {"local": server.target(2)}, [asking("all", items=3)], retention="errors"
        )
        run = made(toy, runs, suite)
    rows = list(open_run(run).samples())
    assert [open_run(run).exchange(row) for row in rows] == [None, None, None]
    # As the suite keeps the lines of rows that did not go well.
    text = json.dumps({"item": 1, "rollout": 0, "right": False, "seconds": 0.5, "text": None, "error": "no"})
    kept = json.dumps({"record": rows[1].record, "line": rows[1].line, "text": text})
    (run / "all/retained.jsonl").write_text(kept + "\n", "utf-8")
    found = open_run(run).exchange(rows[1])
    assert found is not None
    assert (found.error, found.spans) == ("no", {"total": 0.5})
    assert open_run(run).exchange(rows[0]) is None
