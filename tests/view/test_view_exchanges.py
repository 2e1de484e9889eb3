"""What was said, read from records of every form, also from ones that nobody should believe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.record.sample import NEVER, Sample
from assay.view.exchange_evalscope import EvalScope
from assay.view.exchange_verifiers import reader
from assay.view.exchanges import Exchanges
from assay.view.lines import Lines
from assay.view.message import message

RECORDED = Path(__file__).parents[1] / "record/recorded"


def row(record: str, line: int, key: str = "default/0") -> Sample:
    """A row that was read from a record."""
    told = {
        **NEVER,
        "entry": "job",
        "task_key": key,
        "rollout": 0,
        "seed": None,
        "family": "f",
        "cluster": "c",
    }
    return Sample.model_validate({**told, "status": "errored", "record": record, "line": line})


def exchanges(run: Path, rows: list[Sample]) -> Exchanges:
    """The exchanges of rows that Verifiers recorded."""
    return Exchanges(Lines(run), lambda: rows, reader)


@pytest.mark.parametrize(
    ("name", "record", "spans"),
    [
        ("eval.jsonl", "traces.jsonl", {"boot", "setup", "agent", "finalize", "scoring"}),
        ("vf-eval-v0.jsonl", "results.jsonl", {"setup", "generation", "scoring"}),
    ],
)
def test_both_older_forms_of_verifiers_are_read(
    tmp_path: Path, name: str, record: str, spans: set[str]
) -> None:
    (tmp_path / "e").mkdir()
    shutil.copy(RECORDED / name, tmp_path / "e" / record)
    rows = [row(f"e/{record}", line) for line in (1, 2)]
    (_, first), (_, second) = exchanges(tmp_path, rows).all()
    assert first is not None
    assert [(each.role, each.text) for each in first.messages] == [
        ("system", "Answer with a number."),
        ("user", "What is 0+0?"),
        ("assistant", "0"),
    ]
    assert first.target == "0"
    assert {part.name: part.score for part in first.parts} == {"correct": 1.0, "short": 1.0}
    assert first.started == 0.0
    assert set(first.spans) == spans
    assert second is not None
    assert second.messages[2].text == "2 and more and more and more"
    assert second.started is not None
    assert second.started > 0.0


def test_parts_thinking_tools_and_pictures_are_told_apart() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"x": 1}'}}
    content = [
        {"type": "reasoning", "reasoning": "Hm."},
        {"type": "text", "text": "Look: "},
        {"type": "image_url", "image_url": {"url": "data:"}},
    ]
    found = message({"role": "assistant", "content": content, "tool_calls": [call]})
    assert (found.text, found.thinking) == ("Look: [image]", "Hm.")
    assert [json.loads(each) for each in found.calls] == [call]
    other = message({"role": "assistant", "content": None, "reasoning_content": "So."})
    assert (other.text, other.thinking, other.calls) == ("", "So.", ())


def test_a_rollout_without_a_trace_shows_its_question_and_its_whole_error(tmp_path: Path) -> None:
    error = {"type": "BootError", "message": "no room", "traceback": "at line 1"}
    data = {"prompt": "What is 1+1?", "system_prompt": "Be brief.", "info": {"answer": 2}}
    episode = {"task": {"key": "k", "data": data}, "ok": False, "errors": [error], "traces": []}
    (tmp_path / "traces.jsonl").write_text(json.dumps(episode) + "\n")
    found = exchanges(tmp_path, []).one(row("traces.jsonl", 1))
    assert found is not None
    assert [each.text for each in found.messages] == ["Be brief.", "What is 1+1?"]
    assert found.error == "BootError: no room\nat line 1"
    assert found.target == "2"


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b"{",
        b"[" * 100_000,
        b'{"task": 1, "traces": []}',
        b'{"task": {"data": {}}, "traces": [7]}',
        b'{"task": {"data": {}}, "traces": [{"rewards": 3}]}',
        b'{"task": {"data": {}}, "traces": [{"nodes": [{"message": "no"}]}]}',
    ],
)
def test_a_record_that_cannot_be_read_says_so_and_stops_nobody(tmp_path: Path, line: bytes) -> None:
    good = (RECORDED / "eval.jsonl").read_bytes().splitlines()[0]
    (tmp_path / "traces.jsonl").write_bytes(line + b"\n" + good + b"\n")
    (_, bad), (_, found) = exchanges(tmp_path, [row("traces.jsonl", n) for n in (1, 2)]).all()
    assert bad is not None
    assert str(bad.error).startswith("its record cannot be read: ")
    assert found is not None
    assert found.error is None
    assert found.started == 0.0


@pytest.mark.parametrize("name", ["../traces.jsonl", "/etc/traces.jsonl", "a/../../traces.jsonl"])
def test_a_record_outside_the_run_is_not_opened(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(RECORDED / "eval.jsonl", tmp_path / "traces.jsonl")
    found = exchanges(run, []).one(row(name, 1))
    assert found is not None
    assert "is no path below the run" in str(found.error)


def test_half_a_surrogate_pair_can_be_written_by_whoever_shows_it(tmp_path: Path) -> None:
    value = json.loads((RECORDED / "eval.jsonl").read_bytes().splitlines()[0])
    value["traces"][0]["nodes"][-1]["message"]["content"] = "half \ud83d of a face"
    (tmp_path / "traces.jsonl").write_text(json.dumps(value) + "\n")
    found = exchanges(tmp_path, []).one(row("traces.jsonl", 1))
    assert found is not None
    assert found.messages[-1].text.encode("utf-8").decode("utf-8") == "half \ufffd of a face"


def test_a_line_that_is_not_there_is_no_exchange(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "eval.jsonl", tmp_path / "traces.jsonl")
    there = exchanges(tmp_path, [])
    assert there.one(row("traces.jsonl", 10_000)) is None
    assert there.one(row("other/traces.jsonl", 1)) is None


def test_turns_of_a_bfcl_entry_stand_between_its_questions(tmp_path: Path) -> None:
    attempt = tmp_path / "job/attempt-1"
    question = [[{"role": "user", "content": "First?"}], [{"role": "user", "content": "Second?"}]]
    content = json.dumps(["one()", [["two()"], ["three()"]]])
    prediction: dict[str, Any] = {
        "index": 4,
        "model_output": {"choices": [{"message": {"content": content}}], "time": 3.0},
        "messages": [{"role": "user", "content": "First?"}],
        "metadata": {"question": question, "function": [{"name": "one"}]},
    }
    score = {"value": {"acc": 0}, "extracted_prediction": None, "metadata": {"error_type": "bad"}}
    review = {"index": 4, "target": "[]", "sample_score": {"score": score}}
    calls = [{"seconds": 1.0, "finish_reason": "stop"}, {"seconds": 2.0, "finish_reason": "stop"}]
    for name, value in (
        ("predictions/model/bfcl_v4_multi.jsonl", prediction),
        ("reviews/model/bfcl_v4_multi.jsonl", review),
        ("calls.jsonl", {"subset": "multi", "index": 4, "calls": calls}),
    ):
        (attempt / name).parent.mkdir(parents=True, exist_ok=True)
        (attempt / name).write_text(json.dumps(value) + "\n")
    sample = row("job/attempt-1/predictions/model/bfcl_v4_multi.jsonl", 1, "multi/2")
    found = EvalScope().exchange(sample, Lines(tmp_path))
    assert found is not None
    assert [(each.role, each.text) for each in found.messages] == [
        ("tools", '[{"name": "one"}]'),
        ("user", "First?"),
        ("assistant", "one()"),
        ("user", "Second?"),
        ("assistant", '[["two()"], ["three()"]]'),
    ]
    assert found.spans == {"call 1": 1.0, "call 2": 2.0}
    assert (found.target, [part.score for part in found.parts]) == ("[]", [0.0])
    assert "bad" in str(found.scorer)
