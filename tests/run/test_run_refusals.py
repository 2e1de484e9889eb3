"""What a run refuses: one message that says what, why and the next command, the exit code, nothing left."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.run.state import this_process
from standin import StandIn
from toy_checkout import Done, Toy

CANARY = "canary-2f9c1b7a44"


def refused(done: Done, code: int, *said: str) -> None:
    """The command ended with that code, once and without a traceback, and said all this."""
    assert done.code == code, done.err
    assert done.err.count("assay: error:") == 1
    assert "Traceback" not in done.err
    for text in said:
        assert text in done.err
    assert re.search(r"\n  next: \S", done.err), f"no next step: {done.err}"
    assert done.json["exit_code"] == code
    assert done.json["status"] == "error"
    assert set(done.json["error"]) == {"what", "why", "next"}


def test_an_unknown_profile_is_answered_with_the_nearest(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "tpy", "--runs", runs, "--json")
    refused(done, 2, 'there is no profile "tpy"', 'did you mean "toy"?', "known: pair, strict, toy")
    assert list(runs.iterdir()) == []


def test_an_unknown_entry_is_answered_with_the_nearest(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "toy", "cuont", "--runs", runs, "--json")
    refused(done, 2, 'profile "toy" has no entry "cuont"', 'did you mean "count"?')
    assert list(runs.iterdir()) == []


def test_an_unknown_verb_and_an_unknown_option_are_errors_like_any_other(toy: Toy) -> None:
    refused(toy.run("rnu", "toy", "--json"), 2, "invalid choice: 'rnu'")
    refused(toy.run("run", "toy", "--sede", "1", "--json"), 2, "unrecognized arguments: --sede 1")
    refused(toy.run("run", "--json"), 2, "PROFILE")
    refused(toy.run("run", "toy", "--concurrency", "0", "--json"), 2, "--concurrency is 0")
    refused(toy.run("run", "toy", "--concurrency", "many", "--json"), 2, "many")
    refused(toy.run("run", "toy", "--limit", "0", "--json"), 2, "--limit is 0")
    refused(toy.run("run", "toy", "--set", "temprature=1", "--json"), 2, 'did you mean "temperature"?')
    refused(toy.run("run", "toy", "--set", "temperature=-1", "--json"), 2, "temperature")
    refused(toy.run("run", "toy", "--set", "temperature", "--json"), 2, "--set temperature")


def test_a_profile_that_wants_containers_refuses_the_host_runtime(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "strict", "--runtime", "subprocess", "--runs", runs, "--json")
    refused(done, 2, 'profile "strict" does not run on the subprocess runtime', "model-written code")
    refused(toy.run("run", "strict", "--runs", runs, "--json"), 3, "needs a Docker engine, and none answers")
    assert list(runs.iterdir()) == []


def test_an_edited_resolved_run_cannot_bring_a_profile_onto_the_host(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    plan = resolved(toy, runs)
    plan["profile"] = "strict"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    refused(toy.run("run", path, "--runs", runs, "--json"), 2, 'profile "strict" does not run on')


def resolved(toy: Toy, runs: Path) -> dict[str, object]:
    """The resolved configuration of a run of the profile `toy`."""
    run = Path(toy.run("run", "toy", "--runs", runs, "--json").json["run_dir"])
    plan = json.loads((run / "resolved.json").read_text())
    assert isinstance(plan, dict)
    return plan


def test_a_resolved_run_can_be_run_again_as_it_stands_and_no_other_way(toy: Toy, runs: Path) -> None:
    first = Path(toy.run("run", "toy", "--runs", runs, "--json").json["run_dir"])
    path = first / "resolved.json"
    again = toy.run("run", path, "--runs", runs, "--json")
    assert again.code == 0, again.err
    second = Path(again.json["run_dir"])
    assert second != first
    assert (second / "resolved.json").read_bytes() == path.read_bytes()
    digests = [
        [json.loads(line)["answer_digest"] for line in (run / "samples.jsonl").read_text().splitlines()]
        for run in (first, second)
    ]
    assert digests[0] == digests[1]
    refused(
        toy.run("run", path, "count", "--runtime", "subprocess", "--json"),
        2, "ENTRY, --runtime cannot be combined with a resolved run",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: plan.update(evaluator="../../elsewhere"), "evaluator"),
        (lambda plan: plan.update(profile="../x"), "profile"),
        (lambda plan: plan.update(egress="cut"), "egress is 'cut'"),
        (lambda plan: plan.update(image="sha256:0"), "image"),
        (lambda plan: plan.update(runtime="docker", egress="cut"), "image is None on the docker runtime"),
        (lambda plan: plan.update(entries=[]), "entries"),
        (lambda plan: plan.update(entries=plan["entries"] * 2), "two entries have one name"),
        (lambda plan: plan["entries"][0].update(name="a/b"), "entries.0.name"),
        (lambda plan: plan["entries"][0].update(tasks=0), "entries.0.tasks"),
        (lambda plan: plan["entries"][0]["launch"].pop("local.toml"), "launch holds ['entry.toml']"),
        (lambda plan: plan["entries"][0]["launch"].update({"entry.toml": "a = ["}), "entry count: "),
        (lambda plan: plan["entries"][0]["launch"].update({"entry.toml": ""}), "names no env.taskset.id"),
        (lambda plan: plan.update(surprise=1), "surprise"),
    ],
)
def test_a_resolved_run_that_does_not_hold_together_is_refused(
    toy: Toy, runs: Path, tmp_path: Path, change: Callable[[dict[str, object]], object], said: str
) -> None:
    plan = resolved_once(toy)
    change(plan)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    refused(toy.run("run", path, "--runs", runs, "--json"), 2, "is not a resolved run", said)
    assert list(runs.iterdir()) == []


def resolved_once(toy: Toy) -> dict[str, object]:
    """A resolved configuration of the profile `toy`, made without running it."""
    source = (
        "import json; from assay.profile import find_profile; from assay.planning import make_plan;"
        "plan = make_plan(find_profile('toy'), None, 'subprocess', None);"
        "print(json.dumps(plan.model_dump(mode='json')))"
    )
    path = toy.outputs / "resolved.json"
    if not path.exists():
        words = [sys.executable, "-c", source]
        path.write_bytes(subprocess.run(words, env=toy.environment(), capture_output=True, check=True).stdout)
    plan = json.loads(path.read_text())
    assert isinstance(plan, dict)
    return plan


def test_a_taskset_module_of_a_stranger_is_not_run(toy: Toy, runs: Path, tmp_path: Path) -> None:
    plan = json.dumps(resolved_once(toy)).replace("toy_tasks", "this")
    path = tmp_path / "plan.json"
    path.write_text(plan)
    done = toy.run("run", path, "--runs", runs, "--json")
    refused(done, 2, 'asks for the taskset "this"', "does not have it")


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b'{"a":' * 20000, b"\xff\xfe", b'"x"'])
def test_a_file_that_is_no_resolved_run_is_refused(toy: Toy, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    refused(toy.run("run", path, "--json"), 2, "is not a resolved run")
    refused(toy.run("run", tmp_path / "absent.json", "--json"), 2, "is not a resolved run")


def test_a_profiles_file_with_an_unknown_key_is_refused_with_the_nearest(toy: Toy, runs: Path) -> None:
    path = toy.root / "eval/configs/profiles.toml"
    before = path.read_text()
    try:
        path.write_text(before.replace("evaluator =", "evaluater =", 1))
        done = toy.run("run", "toy", "--runs", runs, "--json")
    finally:
        path.write_text(before)
    refused(done, 2, "evaluater", 'did you mean "evaluator"?')


def key_file(tmp_path: Path, content: bytes = CANARY.encode(), mode: int = 0o600) -> Path:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def linked(tmp_path: Path) -> Path:
    path = tmp_path / "link"
    path.symlink_to(key_file(tmp_path))
    return path


def foreign(tmp_path: Path) -> Path:
    path = key_file(tmp_path)
    os.chown(path, 65534, 65534)
    return path


KEY_FAULTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda tmp: tmp / "absent", "No such file"),
    "readable by others": (lambda tmp: key_file(tmp, mode=0o644), "its mode is 0644"),
    "writable by the group": (lambda tmp: key_file(tmp, mode=0o660), "its mode is 0660"),
    "a link": (linked, "it is a symbolic link"),
    "empty": (lambda tmp: key_file(tmp, b""), "it is empty"),
    "with a line end inside": (
        lambda tmp: key_file(tmp, f"{CANARY}\n{CANARY}".encode()),
        "it holds a line end",
    ),
    "with a line end after it": (lambda tmp: key_file(tmp, f"{CANARY}\n".encode()), "it holds a line end"),
    "not printable": (lambda tmp: key_file(tmp, f"{CANARY} \xe4".encode()), "not printable"),
    "too long": (lambda tmp: key_file(tmp, b"x" * 4097), "longer than 4096 bytes"),
    "relative": (lambda tmp: Path("key"), "the path is not absolute"),
    "a folder": (lambda tmp: tmp, "it is not a regular file"),
    "of another user": (foreign, "it belongs to another user"),
}


@pytest.mark.parametrize("fault", KEY_FAULTS)
def test_a_key_file_that_is_not_private_is_refused_before_anything_is_asked(
    toy: Toy, runs: Path, tmp_path: Path, fault: str
) -> None:
    make, why = KEY_FAULTS[fault]
    with StandIn(key=CANARY) as server:
        words = ("--base-url", server.base_url, "--model", "stand-in", "--runs", runs, "--json")
        done = toy.run("run", "pair", *words, "--key-file", make(tmp_path))
        assert server.requests == []
        refused(done, 2, "the key file", "cannot be used", why)
        again = str(make_again(make, tmp_path))
        refused(toy.run("run", "pair", *words, ASSAY_API_KEY_FILE=again), 2, why)
        refused(toy.run("run", "pair", *words, QWEN_API_KEY_FILE=again), 2, why)
    assert CANARY not in done.err + done.out
    assert list(runs.iterdir()) == []


def test_the_key_file_that_is_named_first_is_used_or_refused_and_never_passed_over(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    right, wrong, absent = key_file(tmp_path), tmp_path / "wrong", tmp_path / "absent"
    wrong.touch(mode=0o600)
    wrong.write_text("wrong-key")
    with StandIn(key=CANARY) as server:
        words = (
            "run",
            "pair",
            "second",
            "--base-url",
            server.base_url,
            "--model",
            "stand-in",
            "--runs",
            runs,
        )

        def code(*option: str | Path, qwen: Path | None, assay: Path | None) -> int:
            named = {"QWEN_API_KEY_FILE": qwen, "ASSAY_API_KEY_FILE": assay}
            variables = {name: "" if path is None else str(path) for name, path in named.items()}
            return toy.run(*words, *option, "--json", **variables).code

        assert code("--key-file", right, qwen=wrong, assay=absent) == 0
        assert code(qwen=right, assay=absent) == 0
        assert code(qwen=None, assay=right) == 0
        assert code(qwen=wrong, assay=right) == 3
        assert code(qwen=absent, assay=right) == 2
        assert code("--key-file", wrong, qwen=right, assay=right) == 3


def make_again(make: Callable[[Path], Path], tmp_path: Path) -> Path:
    again = tmp_path / "again"
    again.mkdir()
    return make(again)


def test_an_endpoint_that_is_down_is_named(toy: Toy, runs: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        done = toy.run("run", "pair", "--base-url", url, "--model", "m", "--runs", runs, "--json")
    refused(done, 3, f"the server at {url} does not answer", "refused")
    status = toy.run("status", done.run, "--json")
    assert (status.code, status.json["status"]) == (3, "failed")
    assert "does not answer" in status.json["error"]


def test_a_wrong_key_is_refused_at_the_first_probe(toy: Toy, runs: Path, tmp_path: Path) -> None:
    key = key_file(tmp_path, b"wrong-" + CANARY.encode())
    with StandIn(key=CANARY) as server:
        words = ("--base-url", server.base_url, "--model", "stand-in", "--runs", runs, "--json")
        done = toy.run("run", "pair", *words, "--key-file", key)
        assert server.requests == []
        none = toy.run("run", "pair", *words)
    refused(done, 3, "refuses the key", "it answered 401", "--key-file")
    refused(none, 3, "refuses the key", "it answered 401", "--key-file")
    assert CANARY not in done.err + done.out


def test_a_server_that_still_loads_its_model_is_told_as_not_ready(toy: Toy, runs: Path) -> None:
    with StandIn(loading=True) as server:
        words = ("--base-url", server.base_url, "--model", "stand-in", "--runs", runs, "--json")
        done = toy.run("run", "pair", *words)
    refused(done, 3, "is not ready", "answered 503", "wait until it is")


def test_a_wrong_model_name_is_answered_with_the_nearest(toy: Toy, runs: Path) -> None:
    with StandIn(model="qwen-small") as server:
        words = ("--base-url", server.base_url, "--model", "qwen-smal", "--runs", runs, "--json")
        done = toy.run("run", "pair", *words)
    refused(done, 3, 'does not serve "qwen-smal"', 'did you mean "qwen-small"?')
    (left,) = runs.iterdir()
    assert toy.run("status", left).code == 3


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{CANARY}@127.0.0.1:1/v1",
        f"http://{CANARY}@127.0.0.1:1/v1",
        f"user:{CANARY}@127.0.0.1:1/v1",
        f"http://127.0.0.1:1/v1?key={CANARY}",
        f"http://127.0.0.1:1/v1#{CANARY}",
        f"http://user:{CANARY}@[::1/v1",
        f"ftp://user:{CANARY}@127.0.0.1/v1",
        f"http://user:{CANARY}@127.0.0.1:99999/v1",
        f"http://user:{CANARY}@/v1",
        "http://127.0.0.1:1/",
        "",
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused_and_not_shown(
    toy: Toy, runs: Path, tmp_path: Path, url: str
) -> None:
    done = toy.run("run", "pair", "--base-url", url, "--model", "m", "--runs", runs, "--json")
    refused(done, 2, "the endpoint's address cannot be used", "http://HOST:PORT/v1")
    assert CANARY not in done.err + done.out
    assert list(runs.iterdir()) == []


def test_an_address_with_a_secret_in_a_resolved_run_is_refused(toy: Toy, runs: Path, tmp_path: Path) -> None:
    plan = resolved_once(toy)
    plan["server"] = {"kind": "other", "base_url": f"http://user:{CANARY}@127.0.0.1:1/v1", "model": "m"}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    done = toy.run("run", path, "--runs", runs, "--json")
    refused(done, 2, "it holds a user")
    assert CANARY not in done.err + done.out


def test_half_an_endpoint_is_refused(toy: Toy, runs: Path) -> None:
    done = toy.run("run", "pair", "--base-url", "http://127.0.0.1:1/v1", "--runs", runs, "--json")
    refused(done, 2, "--base-url and --model belong together")
    refused(toy.run("run", "pair", "--runs", runs, "--json"), 2, "has no server of its own", "--base-url")


def test_a_place_for_runs_that_is_none_is_refused(toy: Toy, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for path in (tmp_path / "absent", link, Path(__file__)):
        refused(toy.run("run", "toy", "--runs", path, "--json"), 2, "is not a directory")


@pytest.mark.parametrize("owned", ["eval/runs", ".assay/private"])
def test_a_link_where_a_directory_of_ours_belongs_is_refused_and_not_followed(
    toy: Toy, runs: Path, tmp_path: Path, owned: str
) -> None:
    path, elsewhere, kept = toy.root / owned, tmp_path / "elsewhere", tmp_path / "kept"
    elsewhere.mkdir()
    if path.exists():
        path.rename(kept)
    path.symlink_to(elsewhere)
    try:
        words = () if owned == "eval/runs" else ("--runs", runs)
        done = toy.run("run", "toy", *words, "--json")
        dry = toy.run("run", "toy", "--dry-run", "--json")
    finally:
        path.unlink()
        if kept.exists():
            kept.rename(path)
    refused(done, 2, f"{owned} is a symbolic link where a directory belongs", f"rm {owned}")
    assert dry.code == (0 if owned == "eval/runs" else 2)
    assert list(elsewhere.iterdir()) == []
    assert list(runs.iterdir()) == []


def test_a_file_where_a_directory_of_ours_belongs_is_refused(toy: Toy, runs: Path, tmp_path: Path) -> None:
    path, kept = toy.root / ".assay/private", tmp_path / "kept"
    if path.exists():
        path.rename(kept)
    path.write_text("")
    try:
        done = toy.run("run", "toy", "--runs", runs, "--json")
    finally:
        path.unlink()
        if kept.exists():
            kept.rename(path)
    refused(done, 2, ".assay/private is a file where a directory belongs", "mv .assay/private")


def test_an_evaluator_that_is_not_set_up_is_named(toy: Toy, tmp_path: Path) -> None:
    path, kept = toy.root / "eval/evaluators/toy/.venv", tmp_path / "kept"
    path.rename(kept)
    try:
        done = toy.run("run", "toy", "--dry-run", "--json")
    finally:
        kept.rename(path)
    refused(done, 3, 'the evaluator "toy" is not set up', "eval/scripts/setup toy")


@pytest.mark.parametrize("verb", ["status", "summarize", "audit", "reward"])
def test_a_run_that_is_not_there_is_told(toy: Toy, tmp_path: Path, verb: str) -> None:
    for path in (tmp_path / "absent", tmp_path, Path(__file__)):
        done = toy.run(verb, path, "--json")
        assert done.code == 5
        assert "Traceback" not in done.err
        assert done.json["exit_code"] == 5
        assert str(path.name) in done.err + done.out


def test_a_dry_run_needs_neither_key_nor_server_nor_engine(toy: Toy, runs: Path, tmp_path: Path) -> None:
    words = ("--base-url", "http://127.0.0.1:1/v1", "--model", "m", "--runs", runs, "--dry-run", "--json")
    done = toy.run("run", "pair", *words, ASSAY_API_KEY_FILE=str(tmp_path / "absent"))
    assert done.code == 0, done.err
    assert done.json == {
        "status": "valid",
        "profile": "pair",
        "pins": "production",
        "planned": 12,
        "plan_digest": done.json["plan_digest"],
    }
    assert "pair/second: valid; 4 tasks of 2 families" in done.err
    strict = toy.run("run", "strict", "--dry-run", "--json")
    assert strict.code == 0, strict.err
    assert list(runs.iterdir()) == []


def test_a_dry_run_leaves_nothing_and_clears_away_what_a_killed_one_left(toy: Toy) -> None:
    private = toy.root / ".assay/private"
    mine = this_process()
    for name, owner in (("dry-run-dead", mine.model_copy(update={"start_ticks": 1})), ("dry-run-live", mine)):
        (private / name).mkdir(parents=True)
        (private / name / "owner.json").write_text(owner.model_dump_json())
    done = toy.run("run", "toy", "--dry-run", "--json")
    left = [path.name for path in private.iterdir()]
    (private / "dry-run-live/owner.json").unlink()
    (private / "dry-run-live").rmdir()
    assert (done.code, left) == (0, ["dry-run-live"]), done.err


def test_a_dry_run_tells_what_the_evaluator_refuses(toy: Toy) -> None:
    with toy.entry("toy", "count", {"refuse": "max_concurent: did you mean max_concurrent?"}):
        done = toy.run("run", "toy", "--dry-run", "--json")
    refused(done, 2, 'the evaluator refuses entry "count"', "did you mean max_concurrent?")
