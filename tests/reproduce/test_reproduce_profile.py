"""`assay reproduce` of a profile's run: its requests built again from the records, and asked of a server."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from again import held, honest, serving

from assay.reproduce.choose import pick
from standin import Reply, StandIn
from toy_checkout import Toy

KEY = "canary-2f61c08be4"
SAMPLES = 8


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    path.touch(mode=0o600)
    path.write_text(KEY)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with serving(key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def asked(
    toy: Toy, server: StandIn, key_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    """A run of two rollouts of each of four questions, and what its evaluator asked."""
    runs = tmp_path_factory.mktemp("runs")
    words = ("run", "pair", "first", "--base-url", server.base_url, "--model", server.model)
    done = toy.run(*words, "--runs", runs, "--json", QWEN_API_KEY_FILE=str(key_file))
    assert done.code == 0, done.err
    return Path(done.json["run_dir"]), list(server.requests)


def there(server: StandIn, key_file: Path) -> tuple[str | Path, ...]:
    return ("--base-url", server.base_url, "--key-file", key_file, "--json")


def test_a_server_that_is_the_same_answers_the_same_and_nothing_is_written(
    toy: Toy, asked: tuple[Path, list[dict[str, Any]]], server: StandIn, key_file: Path
) -> None:
    run, requests = asked
    before, count = held(run), len(server.requests)
    done = toy.run("reproduce", run, *there(server, key_file), "-n", "99")
    assert done.code == 0, done.err
    found = done.json
    assert (found["status"], found["samples"], found["finished"]) == ("same", SAMPLES, SAMPLES)
    assert found["counts"] == {"same": SAMPLES, "differs": 0, "drawn": 0, "unanswered": 0}
    assert found["server"]["differences"] == []
    assert found["server"]["claimed"] == found["server"]["recorded"] == "assay-0123456789abcdef"
    # What is asked is what the evaluator asked, but for usage, which it did not want of a stream.
    again = [
        {name: item for name, item in body.items() if name != "stream_options"}
        for body in server.requests[count:]
    ]
    assert sorted(map(canonical, again)) == sorted(map(canonical, requests))
    assert held(run) == before
    assert KEY not in done.out + done.err


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def test_the_seed_picks_the_samples_and_is_told(
    toy: Toy, asked: tuple[Path, list[dict[str, Any]]], server: StandIn, key_file: Path
) -> None:
    def picked(*words: str) -> tuple[list[tuple[str, int]], int]:
        done = toy.run("reproduce", asked[0], *there(server, key_file), "-n", "3", *words)
        assert done.code == 0, done.err
        assert f"seed {done.json['seed']} picks 3 of {SAMPLES}" in done.err
        return [(each["task_key"], each["rollout"]) for each in done.json["requests"]], done.json["seed"]

    one, seed = picked()
    assert len(set(one)) == 3
    assert picked("--seed", str(seed)) == (one, seed)


def test_any_seed_picks_as_many_and_each_sample_as_often_as_another() -> None:
    names = [("entry", key, 0) for key in "abcdefgh"]
    often: Counter[Any] = Counter()
    for seed in range(400):
        one = pick(names, seed, 3)
        assert one.finished == len(names)
        assert len(one.picked) == 3
        assert one.picked == pick(reversed(names), seed, 3).picked
        often.update(one.picked)
    assert all(100 < often[name] < 200 for name in names), "150 is what chance gives"
    assert pick(names, 0, 99).picked == frozenset(names)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda reply: Reply(reply.text + "."), "content from character"),
        (lambda reply: Reply(reply.text, finish_reason="length"), "finish reason"),
        (lambda reply: Reply(reply.text, bash="ls"), "tool calls"),
        (lambda reply: Reply(status=400), "answered 400"),
    ],
)
def test_a_server_that_answers_one_sample_otherwise_is_found_out(
    toy: Toy, asked: tuple[Path, list[dict[str, Any]]], key_file: Path, change: Any, told: str
) -> None:
    """It claims to be the same one, and says the same of all samples but one."""
    first = canonical(asked[1][0]["messages"])

    def lying(number: int, body: dict[str, Any]) -> Reply:
        reply = honest(number, body)
        return change(reply) if canonical(body["messages"]) == first else reply

    with serving(key=KEY, reply=lying) as liar:
        done = toy.run("reproduce", asked[0], *there(liar, key_file), "-n", "99")
    assert done.code == 5
    assert done.json["status"] == "differs"
    assert done.json["counts"]["differs"] == 2, "both rollouts of the question"
    assert done.json["counts"]["same"] == SAMPLES - 2
    differing = [each for each in done.json["requests"] if each["verdict"] == "differs"]
    assert len({each["task_key"] for each in differing}) == 1
    assert all(told in " ".join(each["why"]) for each in differing)


def test_how_the_server_differs_is_told_before_anything_is_asked(
    toy: Toy, asked: tuple[Path, list[dict[str, Any]]], key_file: Path
) -> None:
    other = {"schema": "assay/identity/v1", "system_fingerprint": "assay-fedcba9876543210"}
    with serving(key=KEY, identity=lambda number: other, model="other") as server:
        done = toy.run("reproduce", asked[0], *there(server, key_file), "--model", "other")
    assert done.code == 0, "its answers are the same, whoever it is"
    assert {text.split(" was ")[0] for text in done.json["server"]["differences"]} >= {
        *("identity.system_fingerprint", "models[0]")
    }
    assert done.json["model"] == {"recorded": "stand-in", "asked": "other"}
    assert {body["model"] for body in server.requests} == {"other"}
    assert done.err.index("the server is not as it was") < done.err.index("asking")


def test_nobody_there_and_nobody_left_are_told_apart_from_a_difference(
    toy: Toy, asked: tuple[Path, list[dict[str, Any]]], key_file: Path
) -> None:
    with serving(key=KEY) as gone:
        pass
    done = toy.run("reproduce", asked[0], *there(gone, key_file))
    assert (done.code, done.json["status"]) == (3, "error")

    with serving(key=KEY, reply=lambda number, body: Reply(status=404)) as empty:
        done = toy.run("reproduce", asked[0], *there(empty, key_file))
    assert (done.code, done.json["status"]) == (3, "unanswered")
    assert done.json["counts"]["unanswered"] == SAMPLES
    assert "404" in done.json["requests"][0]["why"][0]


def test_an_answer_that_was_changed_in_the_record_is_no_longer_what_the_server_says(
    toy: Toy, asked: tuple[Path, list[dict[str, Any]]], server: StandIn, key_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / asked[0].name
    shutil.copytree(asked[0], run, symlinks=True)
    traces = run / "first/traces.jsonl"
    lines = traces.read_text("utf-8").splitlines(keepends=True)
    (changed, *_) = [line for line in lines if '"sampled": true' in line]
    episode = json.loads(changed)
    episode["traces"][-1]["nodes"][-1]["message"]["content"] = "<answer>better</answer>"
    lines[lines.index(changed)] = json.dumps(episode) + "\n"
    traces.write_text("".join(lines), "utf-8")
    done = toy.run("reproduce", run, *there(server, key_file), "-n", "99")
    assert done.code == 5
    (differing,) = [each for each in done.json["requests"] if each["verdict"] == "differs"]
    assert differing["task_key"] == episode["task"]["key"]
    assert "better" in differing["why"][0]


def test_what_was_drawn_without_a_seed_is_told_and_not_called_different(
    toy: Toy, runs: Path, key_file: Path
) -> None:
    def drawing(number: int, body: dict[str, Any]) -> Reply:
        return Reply(f"<answer>{number}</answer>")

    with serving(key=KEY, reply=drawing) as server:
        words = (
            "run",
            "pair",
            "second",
            "--base-url",
            server.base_url,
            "--model",
            server.model,
            "--runs",
            runs,
        )
        seeded = ("--set", "temperature=0.8", "--set", "seed=3")
        drawn, fixed = (
            Path(toy.run(*words, *more, "--json", QWEN_API_KEY_FILE=str(key_file)).json["run_dir"])
            for more in (seeded[:2], seeded)
        )
        done = toy.run("reproduce", drawn, *there(server, key_file))
        assert (done.code, done.json["status"]) == (0, "undecided")
        assert done.json["counts"]["drawn"] == 4
        assert all(each["sampled_without_seed"] for each in done.json["requests"])
        done = toy.run("reproduce", fixed, *there(server, key_file))
        assert (done.code, done.json["status"]) == (5, "differs")
        assert server.requests[-1]["seed"] == 3


def test_the_model_that_a_run_served_itself_is_served_again(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "toy", "--runs", runs, "--runtime", "subprocess", "--json")
    run = Path(done.json["run_dir"])
    private = toy.root / ".assay/private"
    before = held(run)
    for words in ((), ("--target", "own")):
        done = toy.run("reproduce", run, *words, "--json")
        assert done.code == 0, done.err
        assert done.json["counts"]["same"] == 6
        assert done.json["target"] == "own"
        assert "started here" in done.err
    assert held(run) == before
    assert list(private.iterdir()) == [], "the server's key and log are gone"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name it, if it is the one: --base-url"),
        (("--target", "own"), "what a run names is not asked unseen"),
        (("--target", "own", "--base-url", "http://127.0.0.1:9/v1"), "two servers"),
        (("--base-url", "http://127.0.0.1:9"), "does not end in /v1"),
        (("--base-url", "http://127.0.0.1:9/v1", "-n", "0"), "number of samples"),
        (("--base-url", "http://127.0.0.1:9/v1", "--key-file", "key"), "not absolute"),
    ],
)
def test_options_that_do_not_say_whom_to_ask_are_refused(
    toy: Toy, asked: tuple[Path, list[dict[str, Any]]], words: tuple[str, ...], told: str
) -> None:
    done = toy.run("reproduce", asked[0], *words, "--json")
    assert done.code == 2
    assert told in done.err


def test_a_folder_that_is_no_run_is_refused(toy: Toy, tmp_path: Path) -> None:
    assert toy.run("reproduce", tmp_path, "--json").code in (2, 5)
    assert toy.run("reproduce", tmp_path / "nothing", "--json").code == 5
