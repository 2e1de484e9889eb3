"""Inspect AI, driven for real: what its records say of good answers, failures, cuts, and of being killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from driven import KEY, Launcher, drive

from assay.backends.inspect import Inspect
from assay.errors import ConfigurationError
from assay.suite.job import Job
from assay.suite.target import Target
from assay.view.exchange_inspect import Inspect as Shown
from assay.view.lines import Lines
from standin import Reply, StandIn

ROWS = [
    {"key": "a", "question": "What is 1 + 1?", "answer": "2", "topic": "sums"},
    {"key": "b", "question": "What is 2 + 2?", "answer": "4", "topic": "sums"},
    {"key": "c", "question": "What fails?", "answer": "4", "topic": "words"},
    {"key": "d", "question": "What is cut?", "answer": "4", "topic": "words"},
    {"key": "e", "question": "What is empty?", "answer": "4", "topic": "words"},
]
COLUMNS = {"input": "question", "target": "answer", "id": "key", "metadata": ["topic"], "family": "topic"}


def answer(number: int, body: dict[str, Any]) -> Reply:
    """4 to everything, but for the questions that say otherwise."""
    question = str(body["messages"][-1]["content"])
    if "fails" in question:
        return Reply(status=500)
    if "cut" in question:
        return Reply("It is 4 or", finish_reason="length")
    return Reply("" if "empty" in question else "It is 4.")


def write_rows(folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """A local data set."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows or ROWS), "utf-8")
    return path


def local(path: Path, **more: Any) -> dict[str, Any]:
    """A job over a local file."""
    arguments = {"file": str(path), "scorer": "includes", **COLUMNS, **more.pop("arguments", {})}
    return {"dataset": "json_dataset", "backend_args": arguments, **more}


@pytest.mark.slow
def test_what_became_of_each_sample_is_told_and_failures_stay_in_the_denominator(tmp_path: Path) -> None:
    generation = {"temperature": 0, "max_tokens": 9, "top_k": 5, "extra_body": {"mark": "x"}, "stop": ["#"]}
    with StandIn(answer, key=KEY) as server:
        job = local(write_rows(tmp_path), generation=generation, arguments={"system": "Be brief."})
        done = drive(Inspect(), tmp_path / "run", job, server.base_url)
        # Nobody but the gateway repeats a request.
        assert len(server.requests) == len(ROWS)
        assert server.most_in_flight <= 2
        asked = server.requests[0]
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    wanted = {"temperature": 0.0, "max_tokens": 9, "top_k": 5, "mark": "x", "stop": ["#"]}
    assert {name: asked.get(name) for name in wanted} == wanted
    assert "seed" not in asked
    assert done.normalised.problems == ()
    by_key = {row.task_key: row for row in done.rows}
    assert [row.task_key for row in done.rows] == ["a", "b", "c", "d", "e"]
    assert {key: row.status for key, row in by_key.items()} == {
        "a": "scored",
        "b": "scored",
        "c": "errored",
        "d": "truncated",
        "e": "scored",
    }
    assert [by_key[key].reward for key in "abde"] == [0.0, 1.0, 1.0, 0.0]
    assert "500" in str(by_key["c"].error)
    assert by_key["c"].reward is None
    assert (by_key["d"].finish_reason, by_key["b"].finish_reason) == ("length", "stop")
    assert [row.empty for row in done.rows] == [False, False, False, False, True]
    assert {row.family for row in done.rows} == {"sums", "words"}
    assert len({row.cluster for row in done.rows}) == len(ROWS)
    assert (by_key["a"].prompt_tokens, by_key["a"].completion_tokens) == (7, 3)
    assert by_key["a"].prompt_digest != by_key["b"].prompt_digest
    assert by_key["a"].answer_digest == by_key["b"].answer_digest
    # Inspect's own accuracy is over four samples; ours says so, and counts five.
    assert done.normalised.reported["includes/accuracy"] == pytest.approx(0.5)
    assert any("4 of 5" in note for note in done.normalised.notes)
    assert done.launcher.reached[-1].total in (5, None)
    shown = {key: Shown().exchange(row, Lines(done.context.run)) for key, row in by_key.items()}
    a, c = shown["a"], shown["c"]
    assert a is not None
    assert [message.role for message in a.messages] == ["system", "user", "assistant"]
    assert (a.messages[1].text, a.messages[2].text) == ("What is 1 + 1?", "It is 4.")
    assert (a.target, a.error, [(part.name, part.score) for part in a.parts]) == (
        "2",
        None,
        [("includes", 0.0)],
    )
    assert a.started is not None
    assert set(a.spans) == {"total", "working"}
    assert c is not None
    assert "500" in str(c.error)
    assert c.messages[-1].text == "What fails?"
    log = next((done.context.folder / "log").glob("*.eval"))
    for path in (log, *done.context.folder.glob("*.json*"), *done.context.launch.glob("*.json")):
        assert KEY.encode() not in path.read_bytes()
    assert KEY not in done.launcher.said


@pytest.mark.slow
def test_each_repeat_of_a_sampled_job_has_a_seed_of_its_own(tmp_path: Path) -> None:
    with StandIn(lambda number, body: Reply(f"It is {body['seed']}.")) as server:
        job = local(
            write_rows(tmp_path),
            generation={"temperature": 0.7, "seed": 3},
            limit=2,
            repeats=2,
            arguments={"scorer": "pattern", "scorer_args": {"pattern": r"It is (\d)"}},
        )
        done = drive(Inspect(), tmp_path / "run", job, server.base_url)
        assert sorted(body["seed"] for body in server.requests) == [3, 3, 4, 4]
    told = [(row.task_key, row.rollout, row.seed, row.reward, row.unparsed) for row in done.rows]
    assert told == [
        ("a", 0, 3, 0.0, False),
        ("a", 1, 4, 0.0, False),
        ("b", 0, 3, 0.0, False),
        ("b", 1, 4, 1.0, False),
    ]


@pytest.mark.slow
def test_thinking_without_an_answer_and_an_answer_that_nobody_can_read_are_told_apart(tmp_path: Path) -> None:
    texts = [("ANSWER: B", None), ("ANSWER: A", "Two?"), ("I would say two.", None), ("", "So many.")]
    rows = [{"q": f"{n}: 1 + 1?", "o": ["3", "2", "4"], "a": "B"} for n in range(len(texts))]

    def reply(number: int, body: dict[str, Any]) -> Reply:
        text, thought = next(
            each for n, each in enumerate(texts) if f"{n}: 1 + 1?" in body["messages"][-1]["content"]
        )
        return Reply(text, thought=thought)

    with StandIn(reply) as server:
        arguments = {"file": str(write_rows(tmp_path, rows)), "scorer": "choice"}
        columns = {"input": "q", "target": "a", "choices": "o"}
        job = {"dataset": "json_dataset", "backend_args": {**arguments, **columns}}
        done = drive(Inspect(), tmp_path / "run", job, server.base_url)
    told = [(row.task_key, row.reward, row.unparsed, row.thinking, row.empty) for row in done.rows]
    assert told == [
        ("1", 1.0, False, False, False),
        ("2", 0.0, False, True, False),
        ("3", 0.0, True, False, False),
        ("4", 0.0, True, True, True),
    ]
    assert len({row.output_digest for row in done.rows}) == 4


@pytest.mark.slow
def test_a_killed_child_leaves_what_had_finished(tmp_path: Path) -> None:
    rows = [{**ROWS[1], "key": f"k{number}"} for number in range(6)]

    def slow(number: int, body: dict[str, Any]) -> Reply:
        return Reply("It is 4.", delay_s=0.0 if number < 3 else 20.0)

    with StandIn(slow) as server:
        launcher = Launcher(until=lambda reached: reached.done >= 3)
        job = local(write_rows(tmp_path, rows))
        done = drive(Inspect(), tmp_path / "run", job, server.base_url, slots=1, launcher=launcher)
    assert done.ended.code == -9
    assert [row.status for row in done.rows] == ["scored"] * 3 + ["missing"] * 3
    assert any("before it wrote how" in problem for problem in done.normalised.problems)


@pytest.mark.slow
def test_a_published_task_reads_its_local_copy_and_a_missing_one_is_named(tmp_path: Path) -> None:
    copy = tmp_path / "gsm8k" / "main"
    copy.mkdir(parents=True)
    questions = [{"question": f"What is {n} + 1?", "answer": f"Add.\n#### {n + 1}"} for n in range(4)]
    for split in ("train", "test"):
        (copy / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    arguments = {"task_args": {"fewshot": 0}, "hub": {"openai/gsm8k": str(copy.parent)}}
    job = {"dataset": "inspect_evals/gsm8k", "limit": 3, "backend_args": arguments}
    with StandIn(lambda number, body: Reply("ANSWER: 2")) as server:
        done = drive(Inspect(), tmp_path / "run", job, server.base_url)
        assert len(server.requests) == 3
        assert [row.reward for row in done.rows] == [0.0, 1.0, 0.0]
        assert done.normalised.primary == "match"
        assert done.normalised.problems == ()
        bare = {"dataset": "inspect_evals/gsm8k", "backend_args": {"task_args": {"fewshot": 0}}}
        for name, lacking, missing in (
            ("hub", bare, "openai/gsm8k"),
            ("file", {"dataset": "inspect_evals/gpqa_diamond"}, "would reach openaipublic"),
        ):
            refused = drive(Inspect(), tmp_path / name / "run", lacking, server.base_url)
            assert refused.rows == []
            assert any(missing in problem for problem in refused.normalised.problems), name
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"dataset": "inspect_evals/gsm8"}, "gsm8k"),
        ({"dataset": "gsm8k"}, "inspect_evals/<name>"),
        ({"dataset": "json_dataset"}, "file is missing"),
        ({"dataset": "json_dataset", "backend_args": {"file": "x.json"}}, "scorer is missing"),
        ({"dataset": "json_dataset", "backend_args": {"flie": "x.json"}}, "file"),
        ({"dataset": "json_dataset", "backend_args": {"file": "x", "scorer": "choice"}}, "choices"),
        ({"dataset": "json_dataset", "backend_args": {"file": "x", "scorer": "pattern"}}, "scorer_args"),
        ({"dataset": "inspect_evals/gsm8k", "backend_args": {"scorer": "match"}}, "json_dataset"),
        ({"dataset": "inspect_evals/gsm8k", "backend_args": {"files": {"../x": "y"}}}, "cache"),
    ],
)
def test_a_job_that_cannot_be_asked_is_refused_by_its_configuration(job: dict[str, Any], told: str) -> None:
    target = Target(name="there", base_url=("http://127.0.0.1:9/v1",), model="m", max_concurrency=1)
    whole = Job.model_validate({"id": "job", "backend": "inspect", "target": "there", **job})
    with pytest.raises(ConfigurationError, match=told):
        Inspect().validate(whole, target)


def test_how_many_samples_there_are_is_known_before_anything_is_asked(tmp_path: Path) -> None:
    target = Target(name="there", base_url=("http://127.0.0.1:9/v1",), model="m", max_concurrency=1)

    def total(**job: Any) -> int | None:
        whole = Job.model_validate({"id": "job", "backend": "inspect", "target": "there", **job})
        return Inspect().plan(whole, target).total

    assert total(**local(write_rows(tmp_path))) == 5
    assert total(**local(write_rows(tmp_path), limit=3, repeats=4)) == 12
    assert total(**local(tmp_path / "nowhere.jsonl")) is None
    assert total(dataset="inspect_evals/gsm8k") == 1319
    assert total(dataset="inspect_evals/gsm8k", backend_args={"task_args": {"fewshot": 1}}) is None
