"""Examples and tasks are apart, duplicates are told, and the same TOML gives the same tasks anywhere."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from typing import Any

import pytest
from evaluator_side import Ask, describe
from families import ANY_FAMILY, GCD, RANSOM_NOTE, Family, selection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.digest import canonical_json, sha256_bytes
from assay.paths import CONFIGS

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
DEMO = CONFIGS / "demo" / "reasoning-gym.toml"


@FEW
@given(family=ANY_FAMILY, n_shot=st.integers(1, 4), seed=st.integers(0, 500))
def test_no_example_is_a_task_and_every_duplicate_is_told(
    ask: Ask, family: Family, n_shot: int, seed: int
) -> None:
    # Seeds so close that the generators' streams overlap: collisions are the rule here.
    answer = ask("drawn", selection=selection(family, n_shot=n_shot, seed=seed, example_seed=seed + 1))
    if "refused" in answer:
        assert f"of {n_shot} examples" in answer["refused"]
        return
    drawn = answer[family["name"]]
    examples = [text for text, _ in drawn["examples"]]
    texts = [task["text"] for task in drawn["tasks"]]

    assert len(examples) == n_shot == len(set(examples))
    assert not set(examples) & set(texts)
    counts = Counter(texts)
    first: dict[str, str] = {}
    for task in drawn["tasks"]:
        assert task["duplicates"] == counts[task["text"]]
        assert task["duplicate_of"] == first.get(task["text"])
        first.setdefault(task["text"], task["key"])


def test_an_example_that_is_a_task_is_passed_over_and_counted(ask: Ask) -> None:
    # A generator's question depends on seed + index, so the first candidates here are tasks 1 to 7.
    drawn = ask("drawn", selection=selection(GCD, seed=0, example_seed=1))["gcd"]
    later = [text for text, _ in ask("directly", **{**GCD, "size": 40}, seed=1)]

    assert drawn["passed_over"] >= 7
    assert drawn["examples"][0][0] in later[7:]


def test_a_family_too_small_for_its_examples_is_refused(ask: Ask) -> None:
    tiny = {**GCD, "size": 60, "parameters": {**GCD["parameters"], "max_value": 2}}

    assert "gcd: " in ask("drawn", selection=selection(tiny))["refused"]


@FEW
@given(family=ANY_FAMILY, seed=st.integers(0, 100))
@pytest.mark.slow
def test_the_baseline_is_the_best_constant_gold_answer(ask: Ask, family: Family, seed: int) -> None:
    drawn = ask("drawn", selection=selection(family, seed=seed, example_seed=5_000, n_shot=0))[family["name"]]
    size = family["size"]
    means = {
        answer: sum(
            ask("directly_scored", **family, seed=seed, index=index, completion=f"<answer>{answer}</answer>")
            for index in range(size)
        )
        / size
        for answer in {task["answer"] for task in drawn["tasks"][:6]}
    }

    assert drawn["baseline"]["answer"] in {task["answer"] for task in drawn["tasks"]}
    assert drawn["baseline"]["score"] >= max(means.values()) - 1e-12
    if drawn["baseline"]["answer"] in means:
        assert drawn["baseline"]["score"] == pytest.approx(means[drawn["baseline"]["answer"]])


def test_another_hash_seed_is_refused_because_it_would_ask_something_else(
    ask: Ask, ask_elsewhere: Ask
) -> None:
    here, elsewhere = (side("directly", **RANSOM_NOTE, seed=0) for side in (ask, ask_elsewhere))

    assert here != elsewhere
    assert "PYTHONHASHSEED" in ask_elsewhere("drawn", selection=selection(RANSOM_NOTE))["refused"]
    assert "refused" not in ask_elsewhere("drawn", selection=selection(RANSOM_NOTE, hash_seed=1))


def test_a_generator_that_is_no_function_of_its_seed_is_refused(ask: Ask) -> None:
    family = {"name": "list_functions", "size": 20, "parameters": {}}

    assert "not a function of its seed" in ask("drawn", selection=selection(family, n_shot=0))["refused"]


@pytest.mark.slow
def test_the_description_is_the_same_bytes_in_any_process() -> None:
    first, second, third = (describe(DEMO, seed) for seed in ("0", "77", None))

    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout == third.stdout


def test_the_description_names_every_task_with_the_digest_of_its_prompt(ask: Ask) -> None:
    described = json.loads(describe(DEMO).stdout)
    tasks: list[dict[str, Any]] = described["tasks"]

    assert [task["key"] for task in tasks] == [
        f"{family}/{index}" for family in described["families"] for index in range(8)
    ]
    assert len(described["families"]) == 10
    loaded = ask("through_verifiers", selection=demo_selection(), replies={})
    for task, native in zip(tasks, loaded, strict=True):
        messages = [["system", native["system"]], *native["messages"]]
        value = [{"role": role, "content": content} for role, content in messages]
        assert task["key"] == native["key"] == native["data"]["id"]
        assert task["prompt_digest"] == sha256_bytes(canonical_json(value))
        assert task["question_digest"] == native["data"]["question_digest"]


def demo_selection() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(DEMO.read_text("utf-8"))["env"]["taskset"]
    return {key: value for key, value in table.items() if key != "id"}
