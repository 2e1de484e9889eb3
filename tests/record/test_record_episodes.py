"""Records of Verifiers 0.3 and 0.4 as samples: broken ones are an error, never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.digest import sha256_bytes, value_digest
from assay.errors import VerificationError
from assay.plan import Part
from assay.record.derive import samples_of
from assay.record.results import samples_bytes
from assay.record.sample import PlannedTask, Sample, TaskPlan

PROMPT = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "1 + 1?"}]
TASK = PlannedTask(key="sum/0", family="sum", prompt_digest=value_digest(PROMPT), question_digest="q")
TASKS = TaskPlan(tasks=(TASK,), baselines={})


def episode(key: str = "sum/0", **trace: Any) -> dict[str, Any]:
    """An episode as Verifiers 0.4 writes it, as far as it is read."""
    nodes = [{"message": message, "sampled": False} for message in PROMPT]
    nodes.append({"message": {"role": "assistant", "content": "2"}, "sampled": True})
    value = {
        "ok": True,
        "errors": [],
        "nodes": nodes,
        "calls": [{"finish_reason": "stop"}],
        "rewards": {"right": {"score": 1.0, "weight": 0.5}, "short": {"score": 0.5, "weight": 1.0}},
        "stop_condition": "agent_completed",
        "timing": {"boot": {"start": 1.0, "end": 2.5}, "agent": {"start": 2.5, "end": 3.0}, "setup": None},
        "num_input_tokens": 12,
        "num_output_tokens": 3,
    }
    return {"ok": True, "errors": [], "task": {"data": {"id": key}}, "traces": [value | trace]}


def derived(
    run: Path, rollouts: int = 1, dialect: str = "vf-eval", tasks: TaskPlan = TASKS
) -> tuple[list[Sample], list[str]]:
    return samples_of(run, "entry", dialect, [Part("entry", 0, rollouts, None)], tasks)


def record(run: Path, folder: str = "entry") -> Path:
    path = run / folder / "traces.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def read(run: Path, *values: Any, rollouts: int = 1) -> tuple[list[Sample], list[str]]:
    record(run).write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
    return derived(run, rollouts)


def only(tmp_path: Path, value: Any) -> Sample:
    samples, problems = read(tmp_path, value)
    assert problems == []
    (sample,) = samples
    return sample


def test_a_scored_rollout_holds_the_weighted_reward_and_both_scores(tmp_path: Path) -> None:
    sample = only(tmp_path, episode())
    assert (sample.status, sample.reward, sample.rewards) == ("scored", 1.0, {"right": 1.0, "short": 0.5})
    assert sample.answer_digest == sha256_bytes(b"2")
    assert sample.prompt_digest == TASK.prompt_digest
    assert (sample.seconds.boot_s, sample.seconds.agent_s, sample.seconds.setup_s) == (1.5, 0.5, None)
    assert sample.seconds.total_s == 2.0
    assert (sample.line, sample.attempts, sample.prompt_tokens, sample.completion_tokens) == (1, 1, 12, 3)


def test_a_planned_rollout_without_a_row_is_missing(tmp_path: Path) -> None:
    samples, problems = derived(tmp_path, 3)
    assert [sample.status for sample in samples] == ["missing"] * 3
    assert [sample.rollout for sample in samples] == [0, 1, 2]
    assert problems == []
    samples, _ = read(tmp_path, episode(), rollouts=2)
    assert [sample.status for sample in samples] == ["scored", "missing"]


@pytest.mark.parametrize(
    ("trace", "status"),
    [
        ({"calls": [{"finish_reason": "length"}]}, "truncated"),
        ({"calls": [{"finish_reason": "length"}, {"finish_reason": "stop"}]}, "scored"),
        ({"calls": [{"finish_reason": "length"}, {"error": "500"}]}, "truncated"),
        ({"stop_condition": "max_turns"}, "truncated"),
        ({"stop_condition": "max_output_tokens"}, "truncated"),
        ({"ok": False, "rewards": {}, "errors": [{"type": "ProviderError", "message": "500"}]}, "errored"),
        ({"rewards": {}}, "errored"),
        ({"ok": False}, "errored"),
    ],
)
def test_what_became_of_a_rollout(tmp_path: Path, trace: dict[str, Any], status: str) -> None:
    sample = only(tmp_path, episode(**trace))
    assert sample.status == status
    assert (sample.reward is None) == (status == "errored")
    assert (sample.error is None) == (status != "errored")


def test_an_episode_that_failed_as_a_whole_is_errored_whatever_its_trace_says(tmp_path: Path) -> None:
    failed = episode() | {"ok": False, "errors": [{"error_type": "SandboxError", "message": "image missing"}]}
    sample = only(tmp_path, failed)
    assert (sample.status, sample.reward) == ("errored", None)
    assert sample.error == "SandboxError: image missing"
    assert only(tmp_path, episode() | {"ok": False, "traces": []}).status == "errored"


def test_an_empty_answer_is_told(tmp_path: Path) -> None:
    nodes = episode()["traces"][0]["nodes"]
    nodes[-1]["message"]["content"] = " \n"
    assert only(tmp_path, episode(nodes=nodes)).empty
    nodes[-1]["message"]["content"] = [{"type": "text", "text": "2"}]
    again = only(tmp_path, episode(nodes=nodes))
    assert not again.empty
    assert again.answer_digest == sha256_bytes(b"2")


def test_rows_that_nobody_planned_are_problems(tmp_path: Path) -> None:
    _, problems = read(tmp_path, episode(), episode(), episode("other/0"))
    assert problems == [
        "entry: task sum/0 has 2 rows, planned 1",
        "entry: task other/0 was not planned",
    ]


def test_lines_are_split_at_line_feeds_alone(tmp_path: Path) -> None:
    nodes = episode()["traces"][0]["nodes"]
    nodes[-1]["message"]["content"] = "a\u0085b\u2028c"
    record(tmp_path).write_text(json.dumps(episode(nodes=nodes), ensure_ascii=False) + "\n", "utf-8")
    samples, _ = derived(tmp_path)
    assert samples[0].answer_digest == sha256_bytes("a\u0085b\u2028c".encode())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value below a JSON value."""
    found = [path] if path else []
    if isinstance(value, dict):
        found += [place for key in value for place in places(value[key], (*path, key))]
    elif isinstance(value, list):
        found += [place for index, item in enumerate(value) for place in places(item, (*path, index))]
    return found


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "1e999", "length", "ok", "x" * 3000]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["score", "key", "id", "x"]), inner)
    ),
    max_leaves=4,
)  # fmt: skip


@pytest.mark.parametrize("value", ["1E310", "-inf", "nan"])
def test_a_time_that_is_no_number_is_an_error(tmp_path: Path, value: str) -> None:
    mutated = copy.deepcopy(episode())
    mutated["traces"][0]["timing"]["boot"]["start"] = value
    with pytest.raises(VerificationError, match="line 1"):
        read(tmp_path, mutated)


def test_half_of_a_surrogate_pair_in_a_record_is_read_as_a_replaced_character(tmp_path: Path) -> None:
    mutated = copy.deepcopy(episode())
    mutated["traces"][0]["calls"][-1]["finish_reason"] = "\ud83d\ude00 \ud800!"
    samples, _ = read(tmp_path, mutated)
    assert samples[0].finish_reason == "\U0001f600 \ufffd!"


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(places(episode())), JSON, st.booleans())
def test_a_record_with_any_value_in_any_place_gives_rows_or_an_error(
    tmp_path: Path, place: tuple[Any, ...], value: Any, delete: bool
) -> None:
    mutated = copy.deepcopy(episode())
    target: Any = mutated
    for step in place[:-1]:
        target = target[step]
    if delete:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    try:
        samples, problems = read(tmp_path, mutated)
    except VerificationError as error:
        told = str(error)
    else:
        told = ""
    assert "line 1" in told or not told
    if told:
        return
    assert len(samples) == 1
    assert samples[0].status != "missing" or problems
    for line in samples_bytes(samples).splitlines():
        assert Sample.model_validate_json(line) in samples


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "1",
        '"x"',
        "{}",
        "{torn",
        "{" * 100_000,
        '{"task": []}',
        '{"task": {"data": []}, "traces": []}',
        '{"task": {"data": {"id": "sum/0"}}, "traces": {}}',
        '{"task": {"data": {"id": ""}}, "traces": []}',
    ],
)
def test_a_line_that_is_no_episode_is_named(tmp_path: Path, line: str) -> None:
    record(tmp_path).write_text(json.dumps(episode()) + "\n" + line + "\n")
    with pytest.raises(VerificationError, match=r"line 2 is not an? (episode|row)"):
        derived(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda trace: trace["rewards"]["right"].update(score=float("nan")),
        lambda trace: trace["rewards"]["right"].update(score=10**400),
        lambda trace: trace["rewards"]["right"].update(weight=float("inf")),
        lambda trace: trace["rewards"]["right"].pop("weight"),
        lambda trace: trace.update(timing={"boot": {"start": 10**400, "end": 1}}),
    ],
)
def test_a_reward_that_is_no_number_is_an_error_and_no_score(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    value = episode()
    change(value["traces"][0])
    with pytest.raises(VerificationError, match="line 1, cannot be read"):
        read(tmp_path, value)
