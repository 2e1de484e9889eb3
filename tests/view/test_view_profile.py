"""A profile's run, read: its benchmarks, its rows, and the conditions that another run must share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import toy_checkout
from assay.errors import VerificationError
from assay.view.open import open_run
from audit.altered import Altered
from audit.routed_toy import FILES, SEEDS, extend
from standin import StandIn
from toy_checkout import Toy


@pytest.fixture(scope="session")
def first(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the toy profile on its own server."""
    return made(toy, tmp_path_factory.mktemp("first"), "toy")


def made(toy: Toy, runs: Path, *words: str) -> Path:
    """The directory of a run."""
    return toy.run("run", *words, "--runs", runs, "--json").run


def conditions(run: Path) -> dict[str, Mapping[str, str]]:
    """Of each benchmark."""
    return {each.name: each.conditions for each in open_run(run).benchmarks()}


def differing(one: Path, other: Path) -> set[str]:
    """The names of conditions that two runs do not share."""
    a, b = conditions(one), conditions(other)
    assert a.keys() == b.keys()
    pairs = [(a[name], b[name]) for name in a]
    return {name for x, y in pairs for name in x.keys() | y.keys() if x.get(name) != y.get(name)}


def test_benchmarks_are_the_families_with_their_counts_and_intervals(first: Path) -> None:
    view = open_run(first)
    assert (view.kind, view.name, view.status, view.model) == ("profile", "toy", "done", "toy-model")
    assert view.started is not None
    assert view.ended is not None
    assert view.started <= view.ended
    found = {each.name: each for each in view.benchmarks()}
    assert list(found) == ["count/letter", "count/digit"]
    for each in found.values():
        rows = [row for row in view.samples() if row.family == each.family and row.entry == each.entry]
        assert each.counts["planned"] == len(rows) == 3
        assert each.score == pytest.approx(sum(row.reward or 0.0 for row in rows) / 3, abs=1e-6)
        assert each.metric == "answer_score"
        assert each.binary is True
        assert each.bounds is not None
        assert each.bounds.low <= (each.score or 0.0) <= each.bounds.high


def test_the_same_profile_on_another_server_has_the_same_conditions(
    toy: Toy, first: Path, tmp_path: Path, runs: Path
) -> None:
    with StandIn(model="another") as server:
        key = tmp_path / "key"
        key.write_text(server.key or "none")
        key.chmod(0o600)
        words = ("--base-url", server.base_url, "--model", "another", "--key-file", str(key))
        second = made(toy, runs, "toy", *words, "--concurrency", "1")
    assert open_run(second).model == "another"
    assert differing(first, second) == set()


def test_what_was_asked_otherwise_is_told_by_its_name(toy: Toy, first: Path, runs: Path) -> None:
    assert differing(first, made(toy, runs, "toy", "--set", "max_tokens=32")) == {"sampling.max_tokens"}
    assert differing(first, made(toy, runs, "toy", "--set", "temperature=0")) == set()
    with toy.entry("toy", "count", {"aside": " Think."}):
        other = made(toy, runs, "toy")
    assert differing(first, other) == {"template.toy.aside"}
    locks = toy.root / "eval/evaluators/toy/requirements.lock"
    before = locks.read_bytes()
    locks.write_text("# another\n")
    try:
        other = made(toy, runs, "toy")
    finally:
        locks.write_bytes(before)
    assert differing(first, other) == {"evaluator.requirements.lock"}


def test_fewer_tasks_are_other_questions(toy: Toy, first: Path, runs: Path) -> None:
    part = conditions(made(toy, runs, "toy", "--limit", "2"))
    whole = conditions(first)
    assert list(part) == ["count/letter"]
    one, other = part["count/letter"], whole["count/letter"]
    assert {name for name in one if one[name] != other.get(name)} == {
        "tasks.limit",
        "tasks.count",
        "tasks.questions",
        "template.prompts",
    }


def test_no_condition_names_the_server_or_a_place_of_the_machine(first: Path, toy: Toy) -> None:
    told = conditions(first)["count/letter"]
    kinds = {name.partition(".")[0] for name in told}
    assert kinds <= {"data", "template", "sampling", "limits", "evaluator", "sandbox", "tasks"}
    for value in told.values():
        assert "127.0.0.1" not in value
        assert str(toy.root) not in value
        assert "toy-model" not in value


def test_facts_say_what_weakens_a_result(first: Path) -> None:
    facts = {fact.name: fact for fact in open_run(first).facts()}
    assert not facts["signature"].sound
    assert facts["worktree"].sound
    assert facts["worktree"].basis == "measured"
    assert facts["server"].basis == "claimed"
    assert facts["pins"].value == "production"


def test_what_is_no_finished_run_is_refused(first: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="not a run directory"):
        open_run(tmp_path / "nothing")
    with pytest.raises(VerificationError, match="is not a run"):
        open_run(tmp_path)
    copy = tmp_path / first.name
    shutil.copytree(first, copy, symlinks=True)
    for name in ("manifest.json", "summary.json"):
        (copy / name).unlink()
        with pytest.raises(VerificationError, match="did not come to its end"):
            open_run(copy)


def test_a_link_out_of_the_run_is_not_followed(first: Path, tmp_path: Path) -> None:
    copy = tmp_path / first.name
    shutil.copytree(first, copy, symlinks=True)
    (copy / "samples.jsonl").unlink()
    (copy / "samples.jsonl").symlink_to(first / "samples.jsonl")
    with pytest.raises(VerificationError, match="is a link to"):
        open_run(copy)


def test_a_row_that_cannot_be_read_is_named(first: Path, tmp_path: Path) -> None:
    copy = tmp_path / first.name
    shutil.copytree(first, copy, symlinks=True)
    with (copy / "samples.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(VerificationError, match="line 7 is no row"):
        list(open_run(copy).samples())


def test_exchanges_are_what_the_evaluator_recorded(first: Path) -> None:
    view = open_run(first)
    found = list(view.exchanges())
    assert [row for row, _ in found] == list(view.samples())
    starts = []
    for row, exchange in found:
        assert exchange is not None
        system, user, assistant = exchange.messages
        assert (system.role, user.role, assistant.role) == ("system", "user", "assistant")
        assert user.text.startswith(f"What comes after {row.family}")
        assert [(part.name, part.score, part.weight) for part in exchange.parts] == [
            ("answer_score", row.reward, 1.0)
        ]
        assert exchange.error is None
        assert set(exchange.spans) == {"boot", "setup", "agent", "scoring"}
        assert exchange == view.exchange(row)
        starts.append(exchange.started)
    assert min(start for start in starts if start is not None) == 0.0


@pytest.mark.slow
def test_pinned_data_sources_and_seeds_are_conditions(tmp_path: Path) -> None:
    routed = toy_checkout.make(tmp_path / "routed")
    extend(routed)
    try:
        run = made(routed, tmp_path, "sampled")
    finally:
        if routed.warm is not None:
            routed.warm.close()
    told = conditions(run)["count/digit"]
    assert told["sampling.seeds"] == str(list(SEEDS)).replace(" ", "")
    assert told["sampling.temperature"] == "0.6"
    assert told["tasks.rollouts"] == "3"
    assert {"data.tiny", "evaluator.source.envs"} <= told.keys()
    for name, input_name in (
        ("data.tiny", f"data:tiny/{next(iter(FILES))}"),
        ("evaluator.source.envs", "source:envs"),
    ):
        other = Altered(tmp_path / name / run.name)
        shutil.copytree(run, other.run, symlinks=True)
        path = "provenance/inputs.before.json"
        before = json.loads((run / path).read_bytes())["inputs"]
        assert input_name in before

        def changed(value: Any, input_name: str = input_name) -> None:
            value["inputs"][input_name] = "0" * 64

        other.json(path, changed)
        assert differing(run, other.run) == {name}
