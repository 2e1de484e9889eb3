"""Records of EvalScope that are torn, doubled, strange or incomplete, read without believing any of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from driven import Launcher, context_of

from assay.backends.base import Context, Ended, Normalised
from assay.backends.evalscope import EvalScope
from assay.backends.evalscope_benchmarks import BENCHMARKS, BFCL_GROUPS
from assay.record.sample import Sample
from assay.suite.job import Job
from assay.suite.target import Target

TARGET = Target(name="there", base_url=("http://127.0.0.1:9/v1",), model="m", max_concurrency=2)
WELL = Ended(0, "exit", "")
DIED = Ended(-9, "exit", "out of memory")


def task(index: int, subset: str = "default", **more: Any) -> dict[str, Any]:
    plain = {"subset": subset, "index": index, "group": index, "family": subset, "scenario": None}
    return {**plain, "prompt": f"{subset}{index}", **more}


def prediction(index: int, content: object = "42", stop: str = "stop", **usage: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": content, "tool_calls": None}, "stop_reason": stop}
    used = {"input_tokens": 5, "output_tokens": 2, "reasoning_tokens": None, **usage}
    return {"index": index, "model_output": {"choices": [choice], "usage": used, "time": 0.5}}


def review(index: int, value: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    score = {"value": {"acc": 1.0} if value is None else value, "extracted_prediction": "42", "metadata": {}}
    return {"index": index, "sample_score": {"score": {**score, **more}, "sample_id": index}}


@dataclass
class Folder:
    """An attempt's folder, written by hand."""

    context: Context

    def write(self, name: str, *rows: object, end: str = "\n") -> None:
        path = self.context.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        path.write_text(text.removesuffix("\n") + end, "utf-8")

    def predictions(self, *rows: object, subset: str = "default", end: str = "\n") -> None:
        self.write(f"predictions/model/{self.context.job.dataset}_{subset}.jsonl", *rows, end=end)

    def reviews(self, *rows: object, subset: str = "default", end: str = "\n") -> None:
        self.write(f"reviews/model/{self.context.job.dataset}_{subset}.jsonl", *rows, end=end)

    def read(self, ended: Ended = WELL) -> tuple[Normalised, list[Sample]]:
        found = EvalScope().normalize(self.context, ended)
        return found, list(found.rows)


def folder_of(tmp_path: Path, dataset: str, arguments: dict[str, Any] | None = None, **more: Any) -> Folder:
    job = Job.model_validate(
        {
            "id": "job",
            "backend": "evalscope",
            "dataset": dataset,
            "target": "there",
            "backend_args": arguments or {},
            **more,
        }
    )
    return Folder(context_of(tmp_path / "run", job, TARGET, "http://127.0.0.1:9/v1", 2, Launcher()))


@pytest.fixture
def aime(tmp_path: Path) -> Folder:
    """Two samples, both answered and scored."""
    folder = folder_of(tmp_path, "aime25")
    folder.write("tasks.jsonl", task(0), task(1))
    folder.predictions(prediction(1), prediction(0))
    folder.reviews(review(1), review(0))
    return folder


def test_rows_stand_in_the_order_of_the_plan_with_the_lines_they_came_from(aime: Folder) -> None:
    found, rows = aime.read()
    assert found.problems == ()
    assert [(row.task_key, row.line, row.reward) for row in rows] == [
        ("default/0", 2, 1.0),
        ("default/1", 1, 1.0),
    ]


def test_a_torn_last_line_is_left_out_and_told(aime: Folder) -> None:
    aime.predictions(prediction(0), json.dumps(prediction(1))[:40], end="")
    found, rows = aime.read(DIED)
    assert [row.status for row in rows] == ["scored", "missing"]
    assert any("torn line" in note for note in found.notes)
    assert "1 samples neither asked nor failed (exit code -9): out of memory" in found.problems[0]


def test_a_next_line_sign_inside_an_answer_ends_no_line(aime: Folder) -> None:
    text = "4\x852\u2028"
    aime.predictions(json.dumps(prediction(0, text), ensure_ascii=False), prediction(1))
    _, rows = aime.read()
    assert [row.status for row in rows] == ["scored", "scored"]


def test_samples_that_stand_twice_or_were_never_planned_fail_the_job(aime: Folder) -> None:
    aime.predictions(prediction(0), prediction(1), prediction(0, "other"), prediction(7))
    found, rows = aime.read()
    assert len(rows) == 2
    assert any("samples twice: 0" in text for text in found.problems)
    assert any("not planned: 7" in text for text in found.problems)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"index": 1, "model_output": {}}', "KeyError"),
        ('{"index": 1, "model_output": nul', "JSONDecodeError"),
        ('{"index": 1, "model_output": {"choices": []}}', "IndexError"),
        ('{"index": 1, "model_output": null}', "TypeError"),
        (json.dumps(prediction(1)).replace("0.5", "NaN"), "not finite"),
    ],
)
def test_a_line_that_cannot_be_read_is_an_errored_row_and_not_a_crash(
    aime: Folder, line: str, said: str
) -> None:
    aime.predictions(prediction(0), line)
    _, rows = aime.read()
    assert [row.status for row in rows] == ["scored", "errored"]
    assert said in str(rows[1].error)


def test_what_was_answered_and_not_scored_is_errored(aime: Folder) -> None:
    aime.reviews(review(0))
    _, rows = aime.read()
    assert (rows[1].status, rows[1].reward, rows[1].error) == (
        "errored",
        None,
        "it was answered, and not scored",
    )


def test_a_score_of_zero_that_a_failed_scorer_gave_is_no_score(aime: Folder) -> None:
    failed = {"acc": "grading_error: no such symbol"}
    aime.reviews(review(0), review(1, {"acc": 0.0}, metadata=failed))
    _, rows = aime.read()
    assert rows[1].status == "errored"
    assert "no such symbol" in str(rows[1].error)


def test_a_scorer_that_gave_nothing_is_errored(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "ifbench")
    folder.write("tasks.jsonl", task(0), task(1))
    folder.predictions(prediction(0), prediction(1))
    strict = {"prompt_level_strict": 1.0, "inst_level_strict": 0.5, "prompt_level_loose": 1.0}
    folder.reviews(review(0, {}), review(1, strict))
    found, rows = folder.read()
    assert found.primary == "prompt_level_strict"
    assert [row.status for row in rows] == ["errored", "scored"]
    assert "no prompt_level_strict" in str(rows[0].error)
    assert rows[1].rewards == strict


def test_an_answer_with_thinking_alone_is_told_from_an_empty_one(aime: Folder) -> None:
    thought = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": " "}]
    aime.predictions(prediction(0, thought), prediction(1, "", reasoning_tokens=9))
    _, rows = aime.read()
    assert [(row.thinking, row.empty, row.unparsed) for row in rows] == [(True, True, False)] * 2


def test_a_prompt_that_did_not_fit_is_told_and_the_servers_refusal_is_no_answer(aime: Folder) -> None:
    aime.predictions(prediction(0, "maximum context length is 8", "model_length"), prediction(1))
    aime.reviews(review(0, {"acc": 0.0}), review(1))
    _, rows = aime.read()
    assert (rows[0].status, rows[0].finish_reason) == ("truncated", "model_length")
    assert (rows[0].empty, rows[0].answer_digest) == (True, None)


def test_repeats_of_a_task_are_numbered_and_share_its_question(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "aime25", repeats=2)
    tasks = [task(n, group=n // 2, prompt=f"shuffled {n}") for n in range(4)]
    folder.write("tasks.jsonl", *tasks)
    _, rows = folder.read(Ended(0, "cancelled", ""))
    assert [(row.task_key, row.rollout) for row in rows] == [
        ("default/0", 0),
        ("default/0", 1),
        ("default/1", 0),
        ("default/1", 1),
    ]
    assert [row.cluster for row in rows] == ["shuffled 0", "shuffled 0", "shuffled 2", "shuffled 2"]
    assert {row.status for row in rows} == {"missing"}


def test_a_stop_that_was_asked_for_is_no_problem(aime: Folder) -> None:
    (aime.context.folder / "predictions/model/aime25_default.jsonl").unlink()
    assert aime.read(Ended(130, "cancelled", ""))[0].problems == ()
    assert len(aime.read(Ended(130, "exit", ""))[0].problems) == 1


def test_an_evaluator_that_planned_nothing_is_a_problem_whatever_its_exit_code(tmp_path: Path) -> None:
    found, rows = folder_of(tmp_path, "aime25").read(Ended(0, "exit", "FileNotFoundError: no data"))
    assert rows == []
    assert "before it said what it would ask (exit code 0): FileNotFoundError" in found.problems[0]


@pytest.mark.parametrize("line", ["[]", "{", '{"subset": "default"}', "\x00"])
def test_a_plan_that_cannot_be_read_is_a_problem(tmp_path: Path, line: str) -> None:
    folder = folder_of(tmp_path, "aime25")
    folder.write("tasks.jsonl", line)
    found, rows = folder.read()
    assert rows == []
    assert any("tasks.jsonl" in text for text in found.problems)


def test_a_benchmark_that_is_not_known_has_its_scorers_main_metric(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "trivia", {"local_data": "/x"})
    folder.write("tasks.jsonl", task(0))
    folder.predictions(prediction(0))
    folder.reviews(review(0, {"f1": 0.25, "exact": 0.0}, main_score_name="f1", prediction="42"))
    found, rows = folder.read()
    assert (found.primary, rows[0].reward) == ("f1", 0.25)
    assert rows[0].unparsed is None
    assert not found.official


def bfcl(tmp_path: Path, subsets: Mapping[str, int], arguments: dict[str, Any]) -> Folder:
    """All of these subsets, answered rightly; EvalScope's report has every group, as it always has."""
    folder = folder_of(tmp_path, "bfcl_v4", arguments)
    folder.write("tasks.jsonl", *(task(n, name) for name, count in subsets.items() for n in range(count)))
    for name, count in subsets.items():
        said = json.dumps([{"f": "{}"}])
        folder.predictions(*(prediction(n, said) for n in range(count)), subset=name)
        folder.reviews(*(review(n, {"acc": 1}) for n in range(count)), subset=name)
    groups = [
        {"name": name, "score": 0.5, "num": 9, "is_aggregate": True} for name in [*BFCL_GROUPS, "OVERALL"]
    ]
    plain = [{"name": name, "score": 1.0, "num": count} for name, count in subsets.items()]
    metric = {"name": "acc", "score": 0.9, "categories": [{"subsets": plain}, {"subsets": groups}]}
    folder.write("reports/model/bfcl_v4.json", {"metrics": [metric]})
    return folder


def test_bfcls_overall_figure_is_given_when_all_of_it_was_asked_and_answered(tmp_path: Path) -> None:
    everything = BENCHMARKS["bfcl_v4"].subsets
    folder = bfcl(tmp_path, everything, {"allow_network_downloads": True})
    found, rows = folder.read()
    assert len(rows) == 5106
    assert found.problems == ()
    assert found.official
    assert found.reported["OVERALL"] == 0.5
    assert set(BFCL_GROUPS) <= set(found.reported)


def test_bfcls_overall_figure_is_suppressed_where_one_sample_came_to_nothing(tmp_path: Path) -> None:
    everything = BENCHMARKS["bfcl_v4"].subsets
    folder = bfcl(tmp_path, everything, {"allow_network_downloads": True})
    said = json.dumps([{"f": "{}"}])
    folder.predictions(*(prediction(n, said) for n in range(15)), subset="live_relevance")
    folder.write("failures.jsonl", {"subset": "live_relevance", "index": 15, "error": "APIError: gone"})
    found, _ = folder.read()
    assert not found.official
    assert "OVERALL" not in found.reported
    # Its groups do not hold that subset: they were asked whole.
    assert set(BFCL_GROUPS) <= set(found.reported)


def test_a_group_of_bfcl_is_given_when_its_subsets_were_asked_whole(tmp_path: Path) -> None:
    asked = {**BFCL_GROUPS["HALLUCINATION"], "simple_python": 400}
    folder = bfcl(tmp_path, asked, {"subset_list": list(asked)})
    found, _ = folder.read()
    assert set(found.reported) == {*(f"acc/{name}" for name in asked), "HALLUCINATION"}
    assert not found.official


def test_entries_whose_memory_could_not_be_prepared_are_errored(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "bfcl_v4", {"subset_list": ["memory_kv"]})
    folder.write("tasks.jsonl", *(task(n, "memory_kv", scenario=("student", "finance")[n]) for n in range(2)))
    folder.predictions(*(prediction(n, '[["x"]]') for n in range(2)), subset="memory_kv")
    folder.reviews(review(0), review(1), subset="memory_kv")
    failure = {"subset": "memory_kv", "scenario": "finance", "index": None, "error": "APIError: gone"}
    folder.write("failures.jsonl", failure)
    found, rows = folder.read()
    assert [(row.status, row.reward) for row in rows] == [("scored", 1.0), ("errored", None)]
    assert "APIError: gone" in str(rows[1].error)
    assert not found.official


def test_what_bfcl_makes_of_its_own_failures_is_no_answer(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "bfcl_v4", {"subset_list": ["simple_java"]})
    folder.write("tasks.jsonl", task(0, "simple_java"), task(1, "simple_java"))
    failed = json.dumps({"error": "no usage", "error_message": "Traceback"})
    folder.predictions(prediction(0, failed), prediction(1, '"I cannot."'), subset="simple_java")
    folder.reviews(
        review(0, {"acc": 0}),
        review(1, {"acc": 0}, metadata={"error_type": "ast_decoder:decoder_failed", "error": "['x']"}),
        subset="simple_java",
    )
    call = {"finish_reason": "length", "thought": True, "prompt_tokens": 9, "completion_tokens": 4}
    folder.write("calls.jsonl", {"subset": "simple_java", "index": 1, "calls": [call]})
    _, rows = folder.read()
    assert (rows[0].status, rows[0].error) == (
        "errored",
        "its record cannot be read: ValueError: BFCL failed: no usage",
    )
    assert (rows[1].status, rows[1].unparsed, rows[1].thinking) == ("truncated", True, True)
    assert (rows[1].prompt_tokens, rows[1].completion_tokens) == (9, 4)
