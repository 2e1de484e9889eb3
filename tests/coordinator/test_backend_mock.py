"""The mock backend: what its rules promise is what its rows say, whatever happens to its child."""

from __future__ import annotations

import http.server
import json
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.backends.base import Lane, Reached
from assay.backends.lines import LineCounter
from assay.backends.registry import NAMES, find
from assay.coordinator.stop import Stop
from assay.errors import ConfigurationError
from assay.run.key import Key
from assay.suite.target import Target
from coordinator.jobs import NOBODY, carry_out, context_of, mock_job

ASKED = Target(name="asked", base_url=("http://127.0.0.1:9/v1",), model="m", max_concurrency=4)


class Answering(http.server.ThreadingHTTPServer):
    """A server of chat completions on loopback; it keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()

    @property
    def lane(self) -> Lane:
        return Lane(f"http://127.0.0.1:{self.server_address[1]}/job/v1", "model-1", Key("canary-key-5d1"))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Answering)
        self.server.asked.append({"path": self.path, **body})
        self.server.keys.add(self.headers["Authorization"])
        said = body["messages"][0]["content"]
        if said.startswith("Item 2:"):
            self.answer(500, {"error": {"message": "no such luck"}})
            return
        message = {"content": "" if said.startswith("Item 3:") else f"answer {body.get('seed')}"}
        choice: dict[str, Any] = {"message": message}
        choice["finish_reason"] = "length" if said.startswith("Item 1:") else "stop"
        usage: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 3}
        if said.startswith("Item 4:"):
            choice["message"] = {"content": "half a \ud800 and a \u0085 and a \u2028"}
            usage = {"prompt_tokens": float("inf"), "completion_tokens": -1}
        self.answer(200, {"choices": [choice], "usage": usage})

    def answer(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Answering]:
    with Answering() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_rows_are_what_the_rules_say_in_order_and_the_same_every_time(tmp_path: Path) -> None:
    job = mock_job(repeats=2, backend_args={"items": 5, "wrong_every": 3})
    first, second = carry_out(tmp_path / "1", job), carry_out(tmp_path / "2", job)

    keys = [(row.task_key, row.rollout) for row in first.rows]
    assert keys == [(str(item), rollout) for item in range(5) for rollout in range(2)]
    assert [row.reward for row in first.rows] == [1, 1, 1, 0, 0, 1, 1, 1, 1, 0]
    assert {row.status for row in first.rows} == {"scored"}
    assert first.normalised.primary in first.rows[0].rewards
    assert first.heard[-1] == Reached(10, 10)
    assert (first.ended.code, first.ended.why, first.normalised.problems) == (0, "exit", ())
    for row in first.rows:
        assert row.record == "job/attempt-1/records.jsonl"
        line = (tmp_path / "1" / row.record).read_text().splitlines()[(row.line or 0) - 1]
        assert (json.loads(line)["item"], json.loads(line)["rollout"]) == (int(row.task_key), row.rollout)
    untimed = [[row.model_copy(update={"seconds": None}) for row in done.rows] for done in (first, second)]
    assert untimed[0] == untimed[1]


def test_sampled_repeats_are_several_answers_and_greedy_ones_are_one(tmp_path: Path) -> None:
    for name, temperature, answers in (("sampled", 0.7, 3), ("greedy", 0, 1)):
        job = mock_job(repeats=3, backend_args={"items": 1}, generation={"temperature": temperature})
        rows = carry_out(tmp_path / name, job).rows
        assert len({row.output_digest for row in rows}) == answers


def test_the_limit_takes_the_first_items(tmp_path: Path) -> None:
    done = carry_out(tmp_path, mock_job(limit=2, backend_args={"items": 5}))
    assert [row.task_key for row in done.rows] == ["0", "1"]
    assert find("mock").plan(mock_job(limit=2, backend_args={"items": 5}), NOBODY).total == 2


def test_a_job_that_fails_reports_what_had_finished_and_the_rest_as_missing(tmp_path: Path) -> None:
    job = mock_job(repeats=2, backend_args={"items": 5, "fail_at": 3, "sleep": 0.001})
    done = carry_out(tmp_path, job)
    assert Counter(row.status for row in done.rows) == {"scored": 6, "missing": 4}
    assert done.normalised.problems == ("fail_at: the evaluator fails at item 3",)
    assert done.ended.code == 1
    assert done.ended.said == "fail_at: the evaluator fails at item 3"
    assert done.log == ["fail_at: the evaluator fails at item 3"]


def test_an_unknown_total_stays_unknown_until_the_end(tmp_path: Path) -> None:
    job = mock_job(backend_args={"items": 4, "unknown_total": True})
    assert find("mock").plan(job, NOBODY).total is None
    done = carry_out(tmp_path / "whole", job)
    assert {reached.total for reached in done.heard} == {None}
    assert (len(done.rows), done.normalised.notes) == (4, ())

    fails = mock_job(backend_args={"items": 4, "unknown_total": True, "fail_at": 3})
    done = carry_out(tmp_path / "fails", fails)
    assert [row.status for row in done.rows] == ["scored"] * 3
    assert "not known" in done.normalised.notes[0]


def test_a_child_that_is_stopped_keeps_what_had_ended(tmp_path: Path) -> None:
    def stop_at_three(stop: Stop, heard: list[Reached]) -> None:
        if heard[-1].done >= 3:
            stop.ask("cancelled")

    job = mock_job(backend_args={"items": 500, "sleep": 0.05})
    done = carry_out(tmp_path, job, slots=2, meanwhile=stop_at_three)
    assert done.ended.why == "cancelled"
    assert done.normalised.problems == (), "being stopped is no fault"
    counts = Counter(row.status for row in done.rows)
    assert counts["scored"] >= 3
    assert counts["scored"] + counts["missing"] == 500


def test_records_that_are_torn_or_strange_are_passed_over(tmp_path: Path) -> None:
    job = mock_job(backend_args={"items": 4})
    done = carry_out(tmp_path, job)
    path = tmp_path / str(done.rows[0].record)
    lines = path.read_bytes().splitlines(keepends=True)
    strange = [b"not JSON\n", b'{"item": 9, "rollout": 0, "right": true, "seconds": 0}\n', b"{}\n"]
    path.write_bytes(b"".join([lines[0], *strange, lines[2], lines[2], lines[3][:-9]]))
    rows = list(find("mock").normalize(context_of(tmp_path, job), done.ended).rows)
    assert [row.status for row in rows] == ["scored", "missing", "scored", "missing"]


def test_reading_rows_keeps_none_of_them(tmp_path: Path) -> None:
    peaks = {}
    for items in (500, 8000):
        job = mock_job(backend_args={"items": items})
        run = tmp_path / str(items)
        ended = carry_out(run, job).ended
        tracemalloc.start()
        try:
            count = sum(1 for _ in find("mock").normalize(context_of(run, job), ended).rows)
            peaks[items] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert count == items
    assert peaks[8000] - peaks[500] < 100_000, "a row of each more would be millions of bytes"


def test_each_rollout_is_a_request_and_its_answer_is_in_the_row(tmp_path: Path, server: Answering) -> None:
    job = mock_job(
        repeats=2,
        backend_args={"items": 4, "ask": True},
        target="asked",
        generation={
            "temperature": 0.5,
            "seed": 40,
            "stop": ["END"],
            "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        },
    )
    done = carry_out(tmp_path, job, target=ASKED, lane=server.lane)

    assert len(server.asked) == 8
    assert server.keys == {"Bearer canary-key-5d1"}
    for asked in server.asked:
        assert asked["path"] == "/job/v1/chat/completions"
        assert (asked["model"], asked["temperature"], asked["stop"]) == ("model-1", 0.5, ["END"])
        assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    assert Counter(asked["seed"] for asked in server.asked) == {40: 4, 41: 4}
    by_item = {(row.task_key, row.rollout): row for row in done.rows}
    assert list(by_item) == [(str(item), rollout) for item in range(4) for rollout in range(2)]
    assert [by_item[str(item), 0].status for item in range(4)] == ["scored", "truncated", "errored", "scored"]
    assert "no such luck" in (by_item["2", 0].error or "")
    assert by_item["2", 0].reward is None
    assert [by_item[str(item), 0].empty for item in range(4)] == [False, False, False, True]
    assert by_item["0", 0].answer_digest != by_item["0", 1].answer_digest
    assert (by_item["0", 1].prompt_tokens, by_item["0", 1].completion_tokens) == (7, 3)
    assert (by_item["0", 0].seed, by_item["0", 1].seed) == (40, 41)


def test_a_text_that_no_file_can_hold_and_counts_that_are_none_end_nothing(
    tmp_path: Path, server: Answering
) -> None:
    job = mock_job(backend_args={"items": 6, "ask": True}, target="asked")
    done = carry_out(tmp_path, job, target=ASKED, lane=server.lane)
    assert done.normalised.problems == ()
    rows = {row.task_key: row for row in done.rows}
    assert [rows[str(item)].status for item in (3, 4, 5)] == ["scored"] * 3
    assert (rows["4"].prompt_tokens, rows["4"].completion_tokens) == (None, None)


def test_the_key_stands_in_no_argument_and_in_no_file(tmp_path: Path, server: Answering) -> None:
    job = mock_job(backend_args={"items": 1, "ask": True}, target="asked")
    done = carry_out(tmp_path, job, target=ASKED, lane=server.lane)
    assert server.keys == {"Bearer canary-key-5d1"}
    assert not any("canary" in word for word in done.commands[0].words)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes()


@pytest.mark.parametrize(
    ("fields", "target", "said"),
    [
        ({"backend_args": {"items": 3, "wrong_evry": 2}}, NOBODY, 'did you mean "wrong_every"'),
        ({"backend_args": {}}, NOBODY, "backend_args.items is missing"),
        ({"backend_args": {"items": 3, "fail_at": 3}}, NOBODY, "counted from 0 to 2"),
        ({"backend_args": {"items": 3, "fail_at": 2}, "limit": 2}, NOBODY, "counted from 0 to 1"),
        ({"backend_args": {"items": 3, "ask": True}}, NOBODY, "nobody answers"),
        ({"backend_args": {"items": 3}, "budget": {"tokens": 5}}, ASKED, "budget of tokens"),
    ],
)
def test_options_that_do_not_belong_are_refused(fields: dict[str, Any], target: Target, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        find("mock").validate(mock_job(**fields), target)


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    assert "mock" in NAMES
    with pytest.raises(ConfigurationError, match='did you mean "mock"'):
        find("mok")
    for name in NAMES:
        assert find(name).name == name


def test_lines_are_counted_whole_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    count = LineCounter(path)
    assert count() == 0
    with path.open("ab") as file:
        for text, lines in ((b"one\ntw", 1), (b"o\xc2\x85\r\n", 2), (b"", 2), (b"\n\n", 4)):
            file.write(text)
            file.flush()
            assert count() == lines
    path.unlink()
    assert count() == 4
