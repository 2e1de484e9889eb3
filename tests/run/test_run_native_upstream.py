"""The pinned upstream commands by themselves: what `eval` of 0.3 and `vf-eval` of 0.1 do and leave behind.

The core drives both and reads their records; here they run without it, so that what it takes for granted
stays true of the very versions that are pinned.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from assay.paths import EVALUATORS
from pinned.native import Native
from standin import Reply, StandIn

KEY = "a-key-of-the-test"
MODEL = "stand-in"

pytestmark = pytest.mark.slow


def sums(number: int, body: dict[str, Any]) -> Reply:
    """Right answers to every parity puzzle, cut ones to every order, wrong ones to the rest."""
    prompt = body["messages"][-1]["content"]
    parity = re.search(r"Is (\d+) even or odd", prompt)
    if parity:
        return Reply(text=f"\\boxed{{{'odd' if int(parity[1]) % 2 else 'even'}}}")
    return Reply(text="It is \\boxed{", finish_reason="length" if "taller" in prompt else "stop")


def launch(native: Native, server: StandIn, name: str, **changed: Any) -> Path:
    """A launch of six puzzles on the host runtime."""
    agent = {
        "max_turns": 1,
        "harness": {"id": "null", "env": {"UV_PYTHON_DOWNLOADS": "never"}},
        "runtime": {"type": "subprocess"},
    }
    return native.launch(
        name,
        {
            "model": MODEL,
            "num_tasks": 6,
            "shuffle": True,
            "max_concurrent": 1,
            "push": False,
            "rich": None,
            "output_dir": str(native.folder / "out"),
            "run": {"name": name, "dir": name},
            "client": {"type": "eval", "base_url": server.base_url, "api_key_var": "QWEN_API_KEY"},
            "sampling": {
                "temperature": 0.0,
                "max_tokens": 64,
                "extra_body": {"min_p": 0.0, "chat_template_kwargs": {"enable_thinking": True}},
            },
            "serve": {"max_concurrent": 1, "pool": {"type": "static", "num_workers": 1}},
            "env": {"taskset": native.taskset("i3-logic"), "agent": agent},
            **changed,
        },
    )


def episodes(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def native(pinned, tmp_path_factory):
    return Native("prime-envs", tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def puzzles(native):
    """The traces of six puzzles, and what was asked for them."""
    with StandIn(reply=sums, key=KEY, model=MODEL) as server:
        done = native.run("eval", "@", launch(native, server, "puzzles"), QWEN_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    return native.folder / "out/puzzles/traces.jsonl", server.requests


def test_eval_runs_the_puzzles_and_its_traces_say_what_the_core_reads(native, puzzles):
    traces, requests = puzzles
    found = episodes(traces)
    assert len(found) == len({item["task"]["key"] for item in found}) == 6
    kinds = set()
    for item in found:
        assert (item["ok"], item["errors"]) == (True, [])
        trace = item["traces"][0]
        call = trace["calls"][-1]
        kind = item["task"]["data"]["kind"]
        kinds.add(kind)
        assert trace["rewards"] == {"correct": {"score": float(kind == "parity"), "weight": 1.0}}
        assert call["finish_reason"] == ("length" if kind == "order" else "stop")
        assert call["usage"]["completion_tokens"] == 3
        assert trace["verifiers"]["version"] == native.evaluator.version
    assert "parity" in kinds
    for body in requests:
        assert (body["max_tokens"], body["min_p"]) == (64, 0.0)
        assert body["chat_template_kwargs"] == {"enable_thinking": True}
        assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    written = [path.read_text("utf-8") for path in (native.folder / "out").rglob("*") if path.is_file()]
    assert len(written) == 3
    assert not [text for text in written if KEY in text]


def rescored(native, record, out):
    """The rewards of a record's traces as the replay gives them, by their ids."""
    job = {"record": str(record), "taskset": native.taskset("i3-logic"), "hashes": None, "runtime": None}
    out.mkdir()
    (out / "job.json").write_text(json.dumps({**job, "concurrent": 4, "out": str(out)}), "utf-8")
    programs = (EVALUATORS / "offline.py", EVALUATORS / "rescore_v1.py")
    done = native.run("python", "-P", *programs, out / "job.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "said.json").read_text()) == {"needs": [], "forged": [], "unread": []}
    return {
        item["traces"][0]["id"]: item["traces"][0]["rewards"]
        for item in episodes(out / "scored/traces.jsonl")
    }


def test_saved_answers_score_again_as_they_did_and_changed_ones_otherwise(native, puzzles, tmp_path):
    found = episodes(puzzles[0])
    recorded = {item["traces"][0]["id"]: item["traces"][0]["rewards"] for item in found}
    right = next(name for name, rewards in recorded.items() if rewards["correct"]["score"] == 1.0)
    for item in found:
        if item["traces"][0]["id"] == right:
            node = next(node for node in item["traces"][0]["nodes"] if node["sampled"])
            node["message"]["content"] = "\\boxed{neither}"
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(json.dumps(item) + "\n" for item in found), "utf-8")
    now = rescored(native, changed, tmp_path / "out")
    assert now[right] == {"correct": {"score": 0.0, "weight": 1.0}}
    assert now == {**recorded, right: now[right]}


def test_eval_ends_with_0_though_every_request_failed_and_resume_asks_what_is_owed(native):
    with StandIn(reply=lambda number, body: Reply(status=400), key=KEY, model=MODEL) as server:
        path = launch(native, server, "faults", num_tasks=2)
        done = native.run("eval", "@", path, QWEN_API_KEY=KEY)
        traces = native.folder / "out/faults/traces.jsonl"
        failed = episodes(traces)
        server.reply = sums
        resolved = native.folder / "out/faults/configs/resolved/eval.json"
        again = native.run("eval", "@", resolved, "--resume", QWEN_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert [item["ok"] for item in failed] == [False, False]
    assert all(item["traces"][0]["errors"] for item in failed)
    assert again.returncode == 0, again.stderr
    assert [item["ok"] for item in episodes(traces)] == [True, True]


DIRECT = """\
model = "{model}"
api_base_url = "{url}"
api_key_var = "QWEN_API_KEY"
api_client_type = "openai_chat_completions"
max_concurrent = 1
disable_env_server = true
rollouts_per_example = 2
num_examples = 2
output_dir = "{out}"
{more}
[sampling]
temperature = 0.0
max_tokens = 64

[sampling.extra_body]
min_p = 0.0

[[eval]]
id = "graphwalks"
args = {{ problem_type = "bfs" }}
"""


def nothing_found(number: int, body: dict[str, Any]) -> Reply:
    """A cut answer to the first request, an empty set to the others."""
    if number == 0:
        return Reply(text="Final", finish_reason="length")
    return Reply(text="Final Answer: []")


def test_the_direct_command_writes_rows_and_takes_them_up_again(pinned_direct, tmp_path):
    native = Native("direct", tmp_path)
    launched = tmp_path / "direct.toml"
    values = {"model": MODEL, "out": tmp_path / "out"}
    with StandIn(reply=nothing_found, key=KEY, model=MODEL) as server:
        values["url"] = server.base_url
        launched.write_text(DIRECT.format(**values, more=""))
        done = native.run("vf-eval", launched, "--disable-tui", QWEN_API_KEY=KEY)
        assert done.returncode == 0, done.stderr
        (results,) = (tmp_path / "out/evals" / f"graphwalks--{MODEL}").glob("*/results.jsonl")
        first = episodes(results)
        whole = results.read_bytes()
        results.write_bytes(whole[: whole.rindex(b"{")] + b'{"torn')
        launched.write_text(DIRECT.format(**values, more=f'resume = "{results.parent}"'))
        again = native.run("vf-eval", launched, "--disable-tui", QWEN_API_KEY=KEY)
    assert again.returncode == 0, again.stderr
    assert len(server.requests) == 5
    assert {body["min_p"] for body in server.requests} == {0.0}
    assert sorted(row["example_id"] for row in first) == [0, 0, 1, 1]
    assert sorted(row["example_id"] for row in episodes(results)) == [0, 0, 1, 1]
    assert sorted(row["is_truncated"] for row in first) == [False, False, False, True]
    for row in first:
        assert row["error"] is None
        assert row["token_usage"] == {
            "input_tokens": 7.0,
            "output_tokens": 3.0,
            "final_output_tokens": 3,
            "final_input_tokens": 7,
        }
        assert row["reward"] == row["metrics"]["nodes"]
