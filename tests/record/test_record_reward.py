"""The reward of native records by jq, with the program of the upstream guide, is the reward we read.

The rows are those that real evaluators wrote (see test_record_dialects.py), in any mixture.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import VerificationError
from assay.plan import Plan
from assay.record.results import derive
from assay.record.sample import PlannedTask, TaskPlan
from assay.verbs.reward import PROGRAM, WITHOUT_NULLS, Compared, compare

RECORDED = Path(__file__).parent / "recorded"
PLACES = {
    "eval": "traces.jsonl",
    "vf-eval": "traces.jsonl",
    "vf-eval-v0": "evals/q--m/1f2e3d4c/results.jsonl",
}
NULLS = 2
ENTRY = {
    "eval": '[env.taskset]\nid = "q"\n',
    "vf-eval": '[env.taskset]\nid = "q"\n',
    "vf-eval-v0": '[[eval]]\nenv_id = "q"\n',
}
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, -1.0, 0.1]) | st.floats(-4, 4)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lines_of(dialect: str) -> list[dict[str, Any]]:
    name = "eval" if dialect == "vf-eval" else dialect
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text("utf-8").splitlines()]


def plan_of(dialect: str, seeds: tuple[int, ...]) -> Plan:
    return Plan.model_validate(
        {
            "profile": "p",
            "description": "d",
            "pins": "test",
            "evaluator": "q",
            "dialect": dialect,
            "key_variable": "Q_API_KEY",
            "runtime": "subprocess",
            "egress": "not enforced",
            "image": None,
            "docker": {"workdir": "/w", "cpu": 1, "memory": 1},
            "server": {"kind": "other", "base_url": "http://127.0.0.1:1/v1", "model": "m"},
            "entries": [
                {
                    "name": "e",
                    "tasks": 1,
                    "rollouts": len(seeds) or 1,
                    "seeds": seeds,
                    "launch": {"local.toml": "", "entry.toml": ENTRY[dialect]},
                    "max_concurrent": 1,
                }
            ],
        }
    )


def compared(
    run: Path, dialect: str, parts: list[list[dict[str, Any]]], planned: int | None = None
) -> Compared:
    """Write each part's rows as another task's each, and compare; `planned`: how many tasks are known."""
    seeds = tuple(range(len(parts))) if len(parts) > 1 else ()
    plan = plan_of(dialect, seeds)
    (entry,) = plan.entries
    most = max(len(rows) for rows in parts)
    for part, rows in zip(entry.parts, parts, strict=True):
        path = run / part.folder / PLACES[dialect]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(named(row, number)) + "\n" for number, row in enumerate(rows)))
    keys = [str(number) for number in range(most if planned is None else planned)]
    tasks = TaskPlan(
        tasks=tuple(PlannedTask(key=key, family="q", question_digest=key) for key in keys), baselines={}
    )
    samples, _ = derive(run, plan, {"e": tasks})
    return compare(run, plan, entry, samples)


def named(row: dict[str, Any], number: int) -> dict[str, Any]:
    again = copy.deepcopy(row)
    if "example_id" in again:
        again["example_id"] = number
    else:
        again["task"] |= {"key": str(number), "data": {}}
    return again


@FEW
@given(st.data())
def test_any_rows_of_traces_have_the_reward_that_jq_computes(tmp_path: Path, data: st.DataObject) -> None:
    dialect = data.draw(st.sampled_from(["eval", "vf-eval"]))
    known = lines_of(dialect)
    parts = data.draw(
        st.lists(st.lists(st.sampled_from(known), min_size=1, max_size=6), min_size=1, max_size=3)
    )
    parts = copy.deepcopy(parts)
    for row in (row for rows in parts for row in rows):
        for item in row["traces"][0]["rewards"].values():
            if item is not None:
                item |= {"score": data.draw(WEIGHTS), "weight": data.draw(WEIGHTS)}
    with_nulls = any(None in row["traces"][0]["rewards"].values() for rows in parts for row in rows)
    run = tmp_path / str(data.draw(st.uuids()))
    found = compared(run, dialect, parts)
    assert found.agree, found
    assert found.nulls == with_nulls
    assert found.rows == sum(len(rows) for rows in parts)


@FEW
@given(st.data())
def test_any_rows_of_0_1_have_the_mean_that_jq_computes(tmp_path: Path, data: st.DataObject) -> None:
    known = lines_of("vf-eval-v0")
    parts = data.draw(
        st.lists(st.lists(st.sampled_from(known), min_size=1, max_size=6), min_size=1, max_size=3)
    )
    run = tmp_path / str(data.draw(st.uuids()))
    found = compared(run, "vf-eval-v0", parts)
    rewards = [row["reward"] for rows in parts for row in rows]
    assert found.agree
    assert found.upstream == pytest.approx(sum(rewards) / len(rewards))


def test_the_guides_command_stops_at_a_reward_that_was_never_given_and_that_is_said(tmp_path: Path) -> None:
    known = lines_of("eval")
    found = compared(tmp_path, "eval", [known])
    assert (found.nulls, found.agree, found.rows) == (True, True, 7)
    assert found.upstream == pytest.approx((1.5 + 1.0 + 1.5 + 0.5 + 0.5) / 7)
    assert WITHOUT_NULLS != PROGRAM
    without = compared(tmp_path / "other", "eval", [known[:NULLS]])
    assert (without.nulls, without.upstream) == (False, 1.25)


def test_a_failure_that_left_rewards_counts_with_them_there_and_as_nothing_here(tmp_path: Path) -> None:
    scored, broke = lines_of("eval")[:2]
    broke["ok"] = broke["traces"][0]["ok"] = False
    found = compared(tmp_path, "eval", [[scored, broke]])
    assert (found.agree, found.failed, found.upstream) == (True, 1.0, 1.25)


def test_a_failure_that_left_no_trace_is_no_row_of_the_mean(tmp_path: Path) -> None:
    scored, broke = lines_of("eval")[:2]
    broke |= {"ok": False, "traces": []}
    found = compared(tmp_path, "eval", [[scored, broke]])
    assert (found.agree, found.rows, found.upstream) == (True, 1, 1.5)


def test_a_row_that_nobody_planned_is_a_difference(tmp_path: Path) -> None:
    rows = lines_of("eval")[:NULLS]
    assert compared(tmp_path, "eval", [rows]).agree
    assert not compared(tmp_path, "eval", [rows], planned=1).agree


def test_no_record_at_all_is_an_error_and_one_that_jq_cannot_read_too(tmp_path: Path) -> None:
    plan = plan_of("eval", (1, 2))
    with pytest.raises(VerificationError, match=r"seed-1/traces.jsonl is missing"):
        compare(tmp_path, plan, plan.entries[0], [])
    path = tmp_path / "e/seed-2/traces.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"traces": 3}\n')
    with pytest.raises(VerificationError, match="jq cannot read"):
        compare(tmp_path, plan, plan.entries[0], [])
