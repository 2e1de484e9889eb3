"""Rows that real evaluators wrote (tests/record/recorded), read by each dialect: what became of each rollout.

`eval.jsonl` is by Verifiers 0.3.2.dev86: one answer, one cut by its token limit, one whose scorer raised, one
that the server refused, and three of an agent with a shell (finished, cut by its turns, cut by its tokens).
`vf-eval-v0.jsonl` is by 0.1.15.dev17: two answers, the second cut, a wrong one and one that was refused.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.digest import value_digest
from assay.errors import VerificationError
from assay.plan import Part
from assay.record import dialects
from assay.record.derive import samples_of
from assay.record.native import Row, has_thought, output_digest
from assay.record.sample import PlannedTask, Sample, TaskPlan

RECORDED = Path(__file__).parent / "recorded"
PLACES = {"eval": "traces.jsonl", "vf-eval-v0": "evals/q--m/1f2e3d4c/results.jsonl"}


def lines_of(dialect: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{dialect}.jsonl").read_text("utf-8").splitlines()]


def write(folder: Path, dialect: str, values: list[Any]) -> Path:
    path = folder / PLACES[dialect]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
    return path


def rows_of(folder: Path, dialect: str, values: list[Any]) -> list[Row]:
    write(folder, dialect, values)
    return list(dialects.of(dialect).rows(folder))


def planned(*rows: Row, **changed: object) -> TaskPlan:
    tasks = {
        row.key: PlannedTask(key=row.key, family="q", task_hash=row.task_hash, question_digest=row.key)
        for row in rows
    }
    return TaskPlan(tasks=tuple(task.model_copy(update=changed) for task in tasks.values()), baselines={})


def test_what_0_3_recorded_is_told_by_its_meaning(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "eval", lines_of("eval"))
    told = [(row.ok, row.truncated, row.finish_reason, row.stop_condition, row.turns) for row in rows]
    assert told == [
        (True, False, "stop", "agent_completed", 1),
        (True, True, "length", "agent_completed", 1),
        (False, False, "stop", "agent_completed", 1),
        (False, False, None, "error", 0),
        (True, False, "stop", "agent_completed", 2),
        (True, True, "tool_calls", "max_turns", 3),
        (True, True, "tool_calls", "max_output_tokens", 2),
    ]
    assert [row.reward for row in rows] == [1.5, 1.0, 0.0, 0.0, 1.5, 0.5, 0.5]
    assert rows[1].rewards == {"correct": 1.0, "short": 0.0}
    assert rows[2].rewards == {}
    assert rows[2].error == "TaskError: task QTask scoring: ValueError: scorer broke"
    assert (rows[3].error or "").startswith("ProviderError: upstream 400")
    assert [row.empty for row in rows] == [False, False, False, True, False, True, True]


def test_tokens_are_upstreams_own_count_of_a_trace(tmp_path: Path) -> None:
    """What Verifiers' own `Trace.num_input_tokens` and `Trace.usage` gave for these traces."""
    rows = rows_of(tmp_path, "eval", lines_of("eval"))
    assert [row.prompt_tokens for row in rows] == [27, 27, 27, None, 44, 61, 44]
    assert [row.completion_tokens for row in rows] == [3, 3, 3, None, 6, 9, 6]
    cached = lines_of("eval")[4]
    cached["traces"][0]["calls"][1]["usage"] |= {"prompt_tokens": 17, "cached_input_tokens": 30}
    assert rows_of(tmp_path, "eval", [cached])[0].prompt_tokens == 44


def test_the_time_of_a_rollout_is_that_of_its_stages(tmp_path: Path) -> None:
    for dialect, stages in (("eval", {"boot", "setup", "agent", "scoring"}), ("vf-eval-v0", {"agent"})):
        seconds = rows_of(tmp_path / dialect, dialect, lines_of(dialect))[0].seconds.model_dump()
        assert all(seconds[f"{stage}_s"] is not None and seconds[f"{stage}_s"] >= 0 for stage in stages)
        assert seconds["total_s"] == pytest.approx(
            sum(value or 0.0 for name, value in seconds.items() if name != "total_s"), abs=1e-3
        )


def test_a_task_has_the_key_that_upstream_gives_it(tmp_path: Path) -> None:
    (first, *_) = values = lines_of("eval")
    first["task"]["data"]["id"] = "an id of its own"
    first["task"]["data"]["key"] = "a key of its own"
    rows = rows_of(tmp_path, "eval", values)
    assert rows[0].key == first["task"]["key"]
    assert rows[0].task_hash == first["task"]["hash"]
    assert next(dialects.of("vf-eval").rows(tmp_path)).key == "a key of its own"


def test_what_0_1_recorded_is_told_by_its_meaning(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "vf-eval-v0", lines_of("vf-eval-v0"))
    assert [(row.key, row.ok, row.truncated, row.reward) for row in rows] == [
        ("0", True, False, 1.5),
        ("1", True, True, 1.0),
        ("2", True, False, 0.0),
        ("3", False, False, 0.0),
    ]
    # Every single turn that went well ends so there; it cuts nothing.
    assert [row.stop_condition for row in rows] == ["max_turns_reached"] * 3 + ["has_error"]
    assert rows[1].rewards == {"correct": 1.0, "short": 0.0}
    assert [row.prompt_tokens for row in rows] == [27, 27, 27, None]
    assert [row.completion_tokens for row in rows] == [3, 3, 3, None]
    assert [row.attempts for row in rows] == [1, 1, 1, 0]
    assert [row.turns for row in rows] == [1, 1, 1, 0]
    assert "scripted fault" in (rows[3].error or "")
    messages = [
        {"role": "system", "content": "Answer with a number."},
        {"role": "user", "content": "What is 0+0?"},
    ]
    assert rows[0].prompt_digest == value_digest(messages)


def test_a_record_is_found_where_the_evaluator_puts_it_and_only_one_is_taken(tmp_path: Path) -> None:
    reader = dialects.of("vf-eval-v0")
    assert list(reader.rows(tmp_path)) == []
    path = write(tmp_path, "vf-eval-v0", lines_of("vf-eval-v0"))
    assert reader.record(tmp_path) == path
    other = path.parents[1] / "aaaaaaaa" / path.name
    other.parent.mkdir()
    other.write_text("")
    with pytest.raises(VerificationError, match="2 records of one invocation"):
        list(reader.rows(tmp_path))


@pytest.mark.parametrize("dialect", ["eval", "vf-eval-v0"])
def test_each_seed_has_a_record_of_its_own_and_its_rollouts_number(tmp_path: Path, dialect: str) -> None:
    rows = rows_of(tmp_path / "scratch", dialect, lines_of(dialect)[:2])
    parts = [Part(f"entry/seed-{seed}", number, 1, seed) for number, seed in enumerate((7, 8, 9))]
    for part in parts[:2]:
        write(tmp_path / part.folder, dialect, lines_of(dialect)[:2])
    samples, problems = samples_of(tmp_path, "entry", dialect, parts, planned(*rows))
    assert problems == []
    assert [(row.task_key, row.rollout, row.seed, row.status == "missing") for row in samples] == [
        (row.key, number, seed, seed == 9) for row in rows for number, seed in enumerate((7, 8, 9))
    ]
    assert [row.record for row in samples[:2]] == [f"entry/seed-{seed}/{PLACES[dialect]}" for seed in (7, 8)]
    assert samples[2].record is None


@pytest.mark.parametrize("dialect", ["eval", "vf-eval-v0"])
def test_a_row_too_many_in_one_seeds_record_is_not_the_next_seeds(tmp_path: Path, dialect: str) -> None:
    first = lines_of(dialect)[0]
    rows = rows_of(tmp_path / "scratch", dialect, [first])
    parts = [Part(f"entry/seed-{seed}", number, 1, seed) for number, seed in enumerate((7, 8))]
    write(tmp_path / parts[0].folder, dialect, [first, first])
    samples, problems = samples_of(tmp_path, "entry", dialect, parts, planned(*rows))
    assert problems == [f"entry/seed-7: task {rows[0].key} has 2 rows, planned 1"]
    assert [row.status for row in samples] == ["scored", "missing"]


def test_data_or_prompt_that_the_taskset_does_not_make_is_a_problem(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "entry", "eval", lines_of("eval")[:1])
    parts = [Part("entry", 0, 1, None)]
    _, sound = samples_of(tmp_path, "entry", "eval", parts, planned(*rows))
    assert sound == []
    _, other_data = samples_of(tmp_path, "entry", "eval", parts, planned(*rows, task_hash="f" * 64))
    assert other_data == [f"entry: task {rows[0].key} has other data than the taskset makes"]
    _, other_prompt = samples_of(tmp_path, "entry", "eval", parts, planned(*rows, prompt_digest="f" * 64))
    assert other_prompt == [f"entry: task {rows[0].key} was asked with another prompt than the taskset makes"]


def test_generated_output_differs_by_thinking_and_calls_but_not_by_drawn_ids() -> None:
    def said(**message: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": "4", **message}

    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    flat = {"id": "2", "type": "function", "name": "bash", "arguments": "{}"}
    plain = output_digest([said()])
    assert output_digest([said(reasoning_content="hm")]) != plain
    assert output_digest([said(tool_calls=[call])]) != plain
    assert output_digest([said(tool_calls=[call])]) == output_digest([said(tool_calls=[flat])])
    assert output_digest([said(), said()]) != plain
    assert output_digest([said(reasoning_content=None, tool_calls=None)]) == plain
    assert output_digest([]) is None


def test_thinking_is_what_stands_apart_from_an_answer() -> None:
    def said(**message: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": "<think>4</think>", **message}

    assert has_thought([said(reasoning_content="hm"), said()]) is True
    assert has_thought([said(reasoning_content=" \n"), said(reasoning_content=None)]) is False
    assert has_thought([]) is None


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value below a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        found += [place for key in value for place in places(value[key], (*path, key))]
    elif isinstance(value, list):
        found += [place for index, item in enumerate(value) for place in places(item, (*path, index))]
    return found


AGENTIC = 4
CHANGES = [("eval", AGENTIC, place) for place in places(lines_of("eval")[AGENTIC])]
CHANGES += [("vf-eval-v0", 1, place) for place in places(lines_of("vf-eval-v0")[1])]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 10**400, 1.5, float("nan"), float("inf")]),
    st.sampled_from(["", "x", "1e999", "\ud800", "length"]),
    st.sampled_from([[], {}, [1], [{}], {"x": 1}, {"score": 1}]),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CHANGES), VALUES, st.booleans())
def test_a_record_with_any_value_in_any_place_gives_rows_or_an_error_that_names_the_line(
    tmp_path: Path, change: tuple[str, int, tuple[Any, ...]], value: Any, delete: bool
) -> None:
    dialect, number, place = change
    mutated = copy.deepcopy(lines_of(dialect)[number])
    target: Any = mutated
    for step in place[:-1]:
        target = target[step]
    if delete:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    told = ""
    try:
        rows = rows_of(tmp_path / dialect, dialect, [mutated])
    except VerificationError as error:
        told = str(error)
    assert "line 1" in told or not told
    if told:
        return
    assert len(rows) == 1
    samples, _ = samples_of(
        tmp_path, "entry", dialect, [Part(dialect, 0, 1, None)], planned(*rows, task_hash=None)
    )
    assert Sample.model_validate_json(samples[0].model_dump_json()) == samples[0]
