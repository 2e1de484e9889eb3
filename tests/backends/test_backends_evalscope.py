"""EvalScope, driven for real: what its records say of good answers, failures, cuts, and of being killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import evalscope_data as made
import pytest
from driven import KEY, Done, Launcher, drive

from assay.backends.base import Reached
from assay.backends.evalscope import EvalScope
from assay.view.exchange_evalscope import EvalScope as Shown
from assay.view.lines import Lines
from standin import Reply, StandIn

pytestmark = pytest.mark.slow


def asked(body: dict[str, Any]) -> str:
    """The text of a request's last message."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else json.dumps(content)


def choose(number: int, body: dict[str, Any]) -> Reply:
    """A to everything, but for the questions by which something else is tried."""
    question = asked(body)
    if "What is 1 + 1?" in question:
        return Reply(status=500)
    if "What is 2 + 2?" in question:
        return Reply("答案: A", finish_reason="length")
    if "What is 3 + 3?" in question:
        return Reply("", thought="It is hard to say.")
    if "What is 4 + 4?" in question:
        return Reply("nobody knows this.")
    return Reply("答案: B" if "What is 5 + 5?" in question else "答案: A", thought="Easy.")


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, StandIn]:
    """Two subsets of a set of the user's own, asked of a server with faults."""
    folder = tmp_path_factory.mktemp("chosen")
    data = made.choices(made.choices(folder / "data", 6), 2, "more")
    job = {
        "dataset": "general_mcq",
        "generation": {
            "temperature": 0,
            "max_tokens": 9,
            "seed": 3,
            "top_k": 5,
            "min_p": 0.25,
            "stop": ["##"],
            "reasoning_effort": "none",
            "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        },
        "backend_args": {"local_data": str(data), "subset_list": ["demo", "more"]},
    }
    with StandIn(choose, key=KEY) as server:
        return drive(EvalScope(), folder / "run", job, server.base_url), server


def test_every_option_reaches_the_server_and_nobody_but_the_gateway_repeats_a_request(
    chosen: tuple[Done, StandIn],
) -> None:
    _, server = chosen
    assert len(server.requests) == 8
    assert server.most_in_flight <= 2
    for body in server.requests:
        sent = {name: value for name, value in body.items() if name not in ("messages", "model")}
        assert sent == {
            "temperature": 0.0,
            "max_tokens": 9,
            "seed": 3,
            "top_k": 5,
            "min_p": 0.25,
            "stop": ["##"],
            "reasoning_effort": "none",
            "chat_template_kwargs": {"enable_thinking": False},
        }


def test_what_became_of_each_sample_is_told_and_failures_stay_in_the_denominator(
    chosen: tuple[Done, StandIn],
) -> None:
    done, _ = chosen
    assert done.normalised.problems == ()
    keys = [f"demo/{n}" for n in range(6)] + ["more/0", "more/1"]
    assert [row.task_key for row in done.rows] == keys
    rows = dict(zip(keys, done.rows, strict=True))
    assert {key: row.status for key, row in rows.items()} == dict.fromkeys(keys, "scored") | {
        "demo/1": "errored",
        "demo/2": "truncated",
        "more/1": "errored",
    }
    assert "500" in str(rows["demo/1"].error)
    assert [rows[f"demo/{n}"].reward for n in range(6)] == [1.0, None, 1.0, 0.0, 0.0, 0.0]
    assert (rows["demo/2"].finish_reason, rows["demo/0"].finish_reason) == ("length", "stop")
    assert [rows[f"demo/{n}"].empty for n in (0, 2, 3, 4)] == [False, False, True, False]
    assert [rows[f"demo/{n}"].unparsed for n in (0, 3, 4, 5)] == [False, False, True, False]
    assert [rows[f"demo/{n}"].thinking for n in (0, 2, 3)] == [True, False, True]
    assert {row.family for row in done.rows} == {"demo", "more"}
    assert rows["demo/0"].cluster == rows["more/0"].cluster != rows["demo/2"].cluster
    assert (rows["demo/0"].prompt_tokens, rows["demo/0"].completion_tokens) == (7, 3)
    # EvalScope's own figures leave out what failed, and that is told.
    assert done.normalised.reported["mean_acc/demo"] == pytest.approx(2 / 5)
    assert any("over 6 of 8 samples" in note for note in done.normalised.notes)
    assert not done.normalised.official


def test_rows_name_the_line_that_they_were_read_from(chosen: tuple[Done, StandIn]) -> None:
    done, _ = chosen
    for row in done.rows:
        assert row.record is not None
        assert row.line is not None
        line = json.loads((done.context.run / row.record).read_bytes().split(b"\n")[row.line - 1])
        assert line["index"] == int(row.task_key.partition("/")[2])


def test_what_was_said_is_shown_with_the_review_of_the_same_sample(chosen: tuple[Done, StandIn]) -> None:
    done, _ = chosen
    reader, lines = Shown(), Lines(done.context.run)
    shown = {row.task_key: reader.exchange(row, lines) for row in done.rows}
    for key, answer, thought, score in (
        ("demo/0", "答案: A", "Easy.", 1.0),
        ("demo/3", "", "It is hard to say.", 0.0),
        ("demo/4", "nobody knows this.", None, 0.0),
    ):
        exchange = shown[key]
        assert exchange is not None
        number = key.rpartition("/")[2]
        assert f"What is {number} + {number}?" in exchange.messages[0].text
        last = exchange.messages[-1]
        assert (last.role, last.text, last.thinking) == ("assistant", answer, thought)
        assert [part.score for part in exchange.parts] == [score]
        assert exchange.target == "A"
        assert exchange.spans["total"] > 0.0
    failed = shown["demo/1"]
    assert failed is not None
    assert "500" in str(failed.error)


def test_progress_is_told_against_what_was_planned(chosen: tuple[Done, StandIn]) -> None:
    done, _ = chosen
    assert done.launcher.reached[0] == Reached(0, None)
    counts = [reached.done for reached in done.launcher.reached]
    assert counts == sorted(counts)
    assert done.launcher.reached[-1].total == 8


def test_the_key_stands_in_no_file_and_in_no_argument(chosen: tuple[Done, StandIn]) -> None:
    done, _ = chosen
    (command,) = done.launcher.commands
    assert KEY not in " ".join(command.words) + json.dumps(dict(command.environment))
    for path in done.context.run.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


HOSTILE = "__import__('os').system('touch {0}') or cd"
# The first entry of multi_turn_base, in its own functions, turn by turn.
TURNS = [
    [("cd", {"folder": "document"}), ("mkdir", {"dir_name": "temp"})],
    [("mv", {"source": "final_report.pdf", "destination": "temp"})],
    [],
    [("cd", {"folder": "temp"}), ("grep", {"file_name": "final_report.pdf", "pattern": "budget analysis"})],
    [],
    [("sort", {"file_name": "final_report.pdf"})],
    [],
    [("cd", {"folder": ".."}), ("mv", {"source": "previous_report.pdf", "destination": "temp"})],
    [
        ("cd", {"folder": "temp"}),
        ("diff", {"file_name1": "final_report.pdf", "file_name2": "previous_report.pdf"}),
    ],
    [],
]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, StandIn, Path]:
    """Two subsets of BFCL: functions called rightly, wrongly, not at all, and with code in their names."""
    folder = tmp_path_factory.mktemp("called")
    touched = folder / "touched"
    turns = iter(TURNS)

    def call(number: int, body: dict[str, Any]) -> Reply:
        first = str(body["messages"][0]["content"])
        if "hypotenuse" in first:
            return Reply(status=500)
        if "triangle" in first:
            arguments = {"base": 10, "height": 5, "unit": "units"}
            return Reply("", calls=[("calculate_triangle_area", arguments)], thought="Half of it.")
        if "factorial" in first:
            return Reply("It is 120.", finish_reason="length")
        if "final_report.pdf" in first:
            return Reply("Done.", calls=next(turns))
        if len(body["messages"]) == 1:
            return Reply("", calls=[(HOSTILE.format(touched), {"folder": "x"}), ("open", {"file": "x"})])
        return Reply("Done.")

    job = {
        "dataset": "bfcl_v4",
        "limit": 3,
        "generation": {"temperature": 0, "max_tokens": 77, "seed": 5, "top_k": 9},
        "backend_args": {"subset_list": ["simple_python", "multi_turn_base"]},
    }
    with StandIn(call, key=KEY, model="Qwen/3.6:27b") as server:
        done = drive(EvalScope(), folder / "run", job, server.base_url, model="Qwen/3.6:27b", slots=1)
        return done, server, touched


def test_bfcl_is_asked_with_every_option_and_once(called: tuple[Done, StandIn, Path]) -> None:
    done, server, _ = called
    for body in server.requests:
        sent = {name: body.get(name) for name in ("model", "temperature", "max_tokens", "seed", "top_k")}
        wanted = {"model": "Qwen/3.6:27b", "temperature": 0.0, "max_tokens": 77, "seed": 5, "top_k": 9}
        assert sent == wanted
    failed = [body for body in server.requests if "hypotenuse" in str(body["messages"][0]["content"])]
    assert len(failed) == 1
    assert done.normalised.problems == ()


def test_a_request_of_bfcl_that_failed_is_no_wrong_answer(called: tuple[Done, StandIn, Path]) -> None:
    done, _, _ = called
    rows = {row.task_key: row for row in done.rows}
    assert list(rows) == [f"{name}/{n}" for name in ("multi_turn_base", "simple_python") for n in range(3)]
    triangle, factorial, hypotenuse = (rows[f"simple_python/{n}"] for n in range(3))
    assert (triangle.status, triangle.reward, triangle.thinking) == ("scored", 1.0, True)
    assert (factorial.status, factorial.reward, factorial.unparsed) == ("truncated", 0.0, True)
    assert (hypotenuse.status, hypotenuse.reward) == ("errored", None)
    assert "500" in str(hypotenuse.error)


def test_an_entry_of_several_turns_is_carried_out_with_its_own_functions(
    called: tuple[Done, StandIn, Path],
) -> None:
    done, server, _ = called
    row = next(row for row in done.rows if row.task_key == "multi_turn_base/0")
    shown = Shown().exchange(row, Lines(done.context.run))
    assert shown is not None
    assert [each.role for each in shown.messages] == ["user", "assistant"] * 4
    assert "final_report.pdf" in shown.messages[1].text
    assert len(shown.spans) == len(TURNS)
    assert (row.status, row.reward) == ("scored", 1.0)
    assert row.turns == len(TURNS)
    assert row.completion_tokens == 3 * len(TURNS)
    told = [body["messages"][-1] for body in server.requests if body["messages"][-1]["role"] == "tool"]
    assert any("budget analysis" in str(message["content"]) for message in told)


def test_what_a_model_writes_is_never_run_as_python(called: tuple[Done, StandIn, Path]) -> None:
    done, server, touched = called
    assert not touched.exists()
    refused = [
        str(message["content"])
        for body in server.requests
        for message in body["messages"]
        if message["role"] == "tool" and "is not defined" in str(message["content"])
    ]
    assert any("'open'" in text for text in refused)
    assert next(row for row in done.rows if row.task_key == "multi_turn_base/1").reward == 0.0


def test_bfcl_has_figures_of_what_was_asked_and_no_overall_one(called: tuple[Done, StandIn, Path]) -> None:
    done, _, _ = called
    report = json.loads((done.context.folder / "reports/model/bfcl_v4.json").read_bytes())
    names = {s["name"] for m in report["metrics"] for c in m["categories"] for s in c["subsets"]}
    assert "OVERALL" in names
    assert set(done.normalised.reported) == {"acc/simple_python", "acc/multi_turn_base"}
    assert not done.normalised.official


def test_an_answer_to_each_repeat_has_a_seed_of_its_own_and_a_second_start_asks_the_same(
    tmp_path: Path,
) -> None:
    data = made.expert(tmp_path / "data", 3)
    job = {
        "dataset": "gpqa_diamond",
        "limit": 2,
        "repeats": 2,
        "generation": {"temperature": 1, "seed": 7},
        "backend_args": {"local_data": str(data), "few_shot_num": 0},
    }
    bodies = []
    for name in ("first", "second"):
        with StandIn(lambda number, body: Reply("ANSWER: A"), key=KEY) as server:
            done = drive(EvalScope(), tmp_path / name / "run", job, server.base_url, slots=4)
        bodies.append(sorted(json.dumps(body, sort_keys=True) for body in server.requests))
    # So a resumed job asks, byte for byte, for what the gateway has kept.
    assert bodies[0] == bodies[1]
    rows = [(row.task_key, row.rollout, row.seed) for row in done.rows]
    assert rows == [("default/0", 0, 7), ("default/0", 1, 8), ("default/1", 0, 7), ("default/1", 1, 8)]
    assert sorted(json.loads(body)["seed"] for body in bodies[0]) == [7, 7, 8, 8]
    # EvalScope shuffles the options of each repeat; it is one task all the same.
    assert len({row.cluster for row in done.rows}) == 2
    assert all(row.unparsed is False for row in done.rows)


def test_a_killed_evaluator_leaves_what_had_ended_and_the_rest_is_missing(tmp_path: Path) -> None:
    data = made.sums(tmp_path / "data", 6)
    job = {"dataset": "aime25", "backend_args": {"local_data": str(data)}}
    launcher = Launcher(until=lambda reached: reached.done >= 2)

    def slow(number: int, body: dict[str, Any]) -> Reply:
        return Reply("\\boxed{2}", delay_s=0.0 if number < 2 else 120.0)

    with StandIn(slow, key=KEY) as server:
        done = drive(EvalScope(), tmp_path / "run", job, server.base_url, launcher=launcher)
    assert [row.status for row in done.rows].count("missing") == 4
    assert sorted(row.reward for row in done.rows if row.reward is not None) == [0.0, 1.0]
    assert len(done.normalised.problems) == 1
    assert "4 samples neither asked nor failed" in done.normalised.problems[0]


@pytest.mark.long
def test_an_entry_whose_memory_could_not_be_prepared_is_errored(tmp_path: Path) -> None:
    def forget(number: int, body: dict[str, Any]) -> Reply:
        # The conversations that fill the memories come first; the entry asks for what they told.
        return Reply("Anna.") if "my first name" in asked(body) else Reply(status=500)

    job = {"dataset": "bfcl_v4", "limit": 1, "backend_args": {"subset_list": ["memory_kv"]}}
    with StandIn(forget, key=KEY) as server:
        done = drive(EvalScope(), tmp_path / "run", job, server.base_url)
    assert len(server.requests) > 10
    (row,) = done.rows
    assert (row.status, row.reward, row.turns) == ("errored", None, 1)
    assert "the memory it is asked about could not be prepared" in str(row.error)


@pytest.mark.parametrize(
    ("dataset", "answer", "families"),
    [
        ("erqa", "A", ["Pointing", "Pointing", "Other", "Other"]),
        ("real_world_qa", "ANSWER: Yes", ["real_world_qa"] * 2),
    ],
)
def test_pictures_are_sent_and_told_apart(
    tmp_path: Path, dataset: str, answer: str, families: list[str]
) -> None:
    make = {"erqa": made.robots, "real_world_qa": made.street}[dataset]
    job = {"dataset": dataset, "backend_args": {"local_data": str(make(tmp_path / "data"))}}
    with StandIn(lambda number, body: Reply(answer), key=KEY) as server:
        done = drive(EvalScope(), tmp_path / "run", job, server.base_url)
    assert done.normalised.problems == ()
    assert [row.family for row in done.rows] == families
    assert {row.reward for row in done.rows} == {1.0}
    for body in server.requests:
        parts = body["messages"][0]["content"]
        assert {part["type"] for part in parts} == {"text", "image_url"}
    assert len({row.prompt_digest for row in done.rows}) == len(done.rows)


def test_a_needle_is_hidden_at_each_length_and_depth_and_scored_by_rule(tmp_path: Path) -> None:
    needle = "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day."
    arguments = {
        "local_data": str(made.haystack(tmp_path / "data")),
        "tokenizer": str(made.tokenizer(tmp_path / "tokenizer")),
        "context_lengths": {"min": 1000, "max": 2000, "intervals": 2},
        "depths": {"min": 0, "max": 100, "intervals": 3},
        "subset_list": ["english"],
    }

    def find(number: int, body: dict[str, Any]) -> Reply:
        return Reply(needle if needle in asked(body) else "Nothing.")

    job = {"dataset": "needle_haystack", "backend_args": arguments}
    with StandIn(find, key=KEY) as server:
        done = drive(EvalScope(), tmp_path / "run", job, server.base_url)
    assert [row.family for row in done.rows] == ["english 1000"] * 3 + ["english 2000"] * 3
    assert [row.rewards for row in done.rows] == [{"acc": 1.0}] * 6
    assert len(server.requests) == 6
    lengths = sorted(len(asked(body)) for body in server.requests)
    assert lengths[0] < lengths[-1] - 500
    assert done.normalised.reported["Context#2000 Depth#50"] == 1.0


def test_ifbench_is_scored_by_its_strict_prompts_with_data_that_were_given(tmp_path: Path) -> None:
    arguments = {
        "local_data": str(made.instructions(tmp_path / "data")),
        "nltk_data": str(made.nltk(tmp_path / "nltk")),
    }

    def count(number: int, body: dict[str, Any]) -> Reply:
        return Reply("12 and 7." if "Name 2 and 3." in asked(body) else "Only 1.")

    with StandIn(count, key=KEY) as server:
        job = {"dataset": "ifbench", "backend_args": arguments}
        done = drive(EvalScope(), tmp_path / "run", job, server.base_url)
    assert done.normalised.problems == ()
    assert done.normalised.primary == "prompt_level_strict"
    assert [row.status for row in done.rows] == ["scored"] * 3
    assert [row.reward for row in done.rows] == [1.0, 0.0, 0.0]
    assert set(done.rows[0].rewards) == {
        *("prompt_level_strict", "inst_level_strict", "prompt_level_loose", "inst_level_loose")
    }
    assert done.rows[0].unparsed is False


def test_a_record_that_cannot_be_written_ends_the_evaluator_at_once(tmp_path: Path) -> None:
    data = made.choices(tmp_path / "data", 6)
    # As a full disk would refuse it, whoever asks.
    (tmp_path / "run/job/attempt-1/predictions/model/general_mcq_demo.jsonl").mkdir(parents=True)
    job = {"dataset": "general_mcq", "backend_args": {"local_data": str(data), "subset_list": ["demo"]}}
    with StandIn(lambda number, body: Reply("A"), key=KEY) as server:
        done = drive(EvalScope(), tmp_path / "run", job, server.base_url, slots=1)
    assert len(server.requests) <= 2
    assert {row.status for row in done.rows} == {"missing"}
    assert "6 samples neither asked nor failed" in done.normalised.problems[0]
    assert "Is a directory" in done.normalised.problems[0]


def test_a_benchmark_that_runs_what_a_model_writes_is_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    row = {"task_id": "t/0", "prompt": "def f():\n", "entry_point": "f", "test": "", "canonical_solution": ""}
    data = made.jsonl(tmp_path / "data" / "test.jsonl", [row])
    job = {"dataset": "humaneval", "backend_args": {"local_data": str(data), "subset_list": ["default"]}}
    with StandIn(key=KEY) as server:
        done = drive(EvalScope(), tmp_path / "run", job, server.base_url)
    assert server.requests == []
    assert done.rows == []
    assert done.normalised.problems == (
        "humaneval runs what a model writes, and there is no sandbox for it here",
    )
