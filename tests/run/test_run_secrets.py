"""A canary key: during a run and after it, it stands in no file, no argument list, no log and no output."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.run.key import Key, make_key_file, read_key
from standin import Reply, StandIn
from toy_checkout import Done, Toy, until

CANARY = "canary-e81f4d0c6b"


def holding(secret: str, *places: Path) -> list[Path]:
    """Files at or below the places that hold the secret."""
    found = []
    for place in places:
        for folder, _, names in os.walk(place):
            for name in names:
                path = Path(folder) / name
                if stat.S_ISREG(path.lstat().st_mode) and secret.encode() in path.read_bytes():
                    found.append(path)
    return found


def argument_lists() -> bytes:
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes()
        except OSError:
            continue
    return found


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "secret" / "key"
    path.parent.mkdir()
    path.touch(mode=0o600)
    path.write_text(CANARY)
    return path


def good(number: int, body: dict[str, Any]) -> Reply:
    return Reply()


def failing(number: int, body: dict[str, Any]) -> Reply:
    return Reply(status=500)


@contextmanager
def asked(toy: Toy, runs: Path, key: Path, reply: Callable[[int, dict[str, Any]], Reply]) -> Iterator[Done]:
    """A verbose run with the key; argument lists are looked at with each request."""
    seen = []

    def look(number: int, body: dict[str, Any]) -> Reply:
        seen.append(argument_lists())
        return reply(number, body)

    with StandIn(reply=look, key=CANARY) as server:
        address = ("--base-url", server.base_url, "--model", "stand-in", "--key-file", key)
        yield toy.run("run", "pair", "second", *address, "--runs", runs, "--json", "--verbose")
    assert len(seen) >= 4
    assert not any(CANARY.encode() in lists for lists in seen)


@pytest.mark.parametrize(("reply", "code"), [(good, 0), (failing, 5)])
def test_a_key_is_used_and_stands_nowhere(
    toy: Toy, runs: Path, key: Path, reply: Callable[[int, dict[str, Any]], Reply], code: int
) -> None:
    with asked(toy, runs, key, reply) as done:
        assert done.code == code, done.err
    assert CANARY not in done.out + done.err
    assert holding(CANARY, runs, toy.root, toy.outputs) == []
    assert holding(CANARY, key.parent) == [key], "the search finds what is there"


def test_a_key_reaches_the_child_in_the_variable_that_its_evaluator_names(
    toy: Toy, runs: Path, key: Path
) -> None:
    path = toy.root / "eval/evaluators/toy/evaluator.toml"
    before = path.read_text()
    seen = []

    def look(number: int, body: dict[str, Any]) -> Reply:
        seen.append([name for environ in environments() for name in environ if environ[name] == CANARY])
        return Reply()

    with StandIn(reply=look, key=CANARY) as server:
        address = ("--base-url", server.base_url, "--model", "stand-in", "--runs", runs, "--json")
        try:
            path.write_text(before.replace("ASSAY_API_KEY", "QWEN_API_KEY"))
            done = toy.run("run", "pair", "second", *address, QWEN_API_KEY_FILE=str(key))
        finally:
            path.write_text(before)
    assert done.code == 0, done.err
    assert seen
    assert all(names == ["QWEN_API_KEY"] for names in seen)
    overrides = json.loads(
        (Path(done.json["run_dir"]) / "provenance/launch/second/overrides.json").read_text()
    )
    assert overrides["client"]["api_key_var"] == "QWEN_API_KEY"
    assert holding(CANARY, runs, toy.root, toy.outputs) == []


def environments() -> Iterator[dict[str, str]]:
    """The environment of each evaluator that runs."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"vf_eval.py" in (path / "cmdline").read_bytes():
                words = (path / "environ").read_bytes().decode(errors="replace").split("\0")
                yield dict(word.split("=", 1) for word in words if "=" in word)
        except OSError:
            continue


def repeating(number: int) -> dict[str, Any]:
    """A document of a server that shows its own command line, and more than that."""
    odd = "".join(f"\\u{ord(character):04x}" for character in CANARY)
    return {
        "version": "1",
        "argv": ["server", "--api-key", CANARY, f"--api-key={CANARY}"],
        CANARY: {"deep": [[{"key": f"Bearer {CANARY}"}]]},
        "spelt": json.loads(f'"{odd}"'),
    }


def repeating_list(number: int) -> dict[str, Any]:
    return {"data": [{"id": "stand-in", **repeating(number)}, {"id": f"model-of-{CANARY}"}]}


def repeating_identity(number: int) -> dict[str, Any]:
    return {"schema": "assay/identity/v1", "system_fingerprint": f"assay-{CANARY}", **repeating(number)}


@pytest.mark.parametrize("identity", [None, repeating_identity])
def test_a_server_that_repeats_the_key_in_what_it_tells_brings_it_into_no_record(
    toy: Toy, runs: Path, key: Path, identity: Callable[[int], dict[str, Any]] | None
) -> None:
    told = {"/v1/models": repeating_list, "/props": repeating, "/version": repeating}
    with StandIn(key=CANARY, documents=told, identity=identity) as server:
        address = ("--base-url", server.base_url, "--key-file", key, "--runs", runs, "--json", "--verbose")
        done = toy.run("run", "pair", "second", "--model", "stand-in", *address)
        other = toy.run("run", "pair", "second", "--model", "other", *address)
    assert (done.code, other.code) == (0, 3), done.err
    found = (Path(done.json["run_dir"]) / "provenance/server/second.after.json").read_text()
    assert "model-of-***" in found
    assert ("Bearer ***" in found) == ("--api-key=***" in found) == ('"deep"' in found) is True
    assert "model-of-***" in other.err
    assert CANARY not in done.out + done.err + other.out + other.err
    assert holding(CANARY, runs, toy.root, toy.outputs) == []


def test_a_key_of_digits_is_no_number_in_a_record(toy: Toy, runs: Path, key: Path) -> None:
    secret = "31415926535897"
    key.write_text(secret)
    told = {"/version": lambda number: {"version": int(secret), "port": float(f"0.{secret}"), "true": True}}
    with StandIn(key=secret, documents=told) as server:
        address = ("--base-url", server.base_url, "--key-file", key, "--runs", runs, "--json")
        done = toy.run("run", "pair", "second", "--model", "stand-in", *address)
    assert done.code == 0, done.err
    found = json.loads((Path(done.json["run_dir"]) / "provenance/server/second.after.json").read_text())
    assert found["unverified"]["/version"] == {"version": "***", "port": "***", "true": True}
    assert holding(secret, runs, toy.root) == []


@pytest.mark.parametrize("secret", [CANARY, 'canary-"quoted"-\\-92'])
def test_a_run_whose_answers_repeat_the_key_fails_and_names_the_files(
    toy: Toy, runs: Path, key: Path, secret: str
) -> None:
    key.write_text(secret)
    with StandIn(reply=lambda number, body: Reply(text=f"your key is {secret}"), key=secret) as server:
        address = ("--base-url", server.base_url, "--key-file", key, "--runs", runs, "--json")
        done = toy.run("run", "pair", "second", "--model", "stand-in", *address)
    assert done.code == 5
    said = "second/traces.jsonl holds the endpoint's key: hand this run to nobody, and change the key"
    assert done.json["problems"] == [said]
    assert said in done.err
    assert secret not in done.out + done.err
    (found,) = holding(json.dumps(secret)[1:-1], runs)
    assert found.name == "traces.jsonl"


def test_a_key_stands_nowhere_when_the_taskset_fails_or_the_server_refuses(
    toy: Toy, runs: Path, key: Path
) -> None:
    with StandIn(key=CANARY) as server:
        address = ("--base-url", server.base_url, "--key-file", key, "--runs", runs, "--json", "--verbose")
        with toy.entry("pair", "second", {"misdescribed": "broken"}, size=2):
            broken = toy.run("run", "pair", "second", "--model", "stand-in", *address)
        other = toy.run("run", "pair", "second", "--model", "other", *address)
    assert (broken.code, other.code) == (2, 3)
    assert CANARY not in broken.out + broken.err + other.out + other.err
    assert holding(CANARY, runs, toy.root, toy.outputs) == []


def test_the_key_of_the_runs_own_server_lives_as_long_as_the_run(toy: Toy, runs: Path) -> None:
    with toy.faults(delay_s=0.3):
        command = toy.start("run", "toy", "--runs", runs, "--json", "--verbose")
        run = command.run()
        private = toy.root / ".assay/private" / run.name
        until((private / "server.json").exists)
        secret = (private / "key").read_text()
        modes = [path.stat().st_mode & 0o777 for path in (private, private / "key")]
        until(lambda: (run / "count/traces.jsonl").exists())
        lists = argument_lists()
        done = command.wait()
    assert done.code == 0, done.err
    assert modes == [0o700, 0o600]
    assert len(secret) > 30
    assert secret.encode() not in lists
    assert secret not in done.out + done.err
    assert holding(secret, runs, toy.root, toy.outputs) == []
    assert not private.exists()


def test_a_callers_own_secrets_do_not_reach_the_evaluator(toy: Toy, runs: Path, tmp_path: Path) -> None:
    seen = []

    def reply(number: int, body: dict[str, Any]) -> Reply:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if b"vf_eval.py" in (path / "cmdline").read_bytes():
                    seen.append((path / "environ").read_bytes())
            except OSError:
                continue
        return Reply()

    with StandIn(reply=reply) as server:
        address = ("--base-url", server.base_url, "--model", "stand-in", "--runs", runs, "--json")
        home = tmp_path / "home"
        variables = {"OPENAI_API_KEY": CANARY, "HF_TOKEN": CANARY, "HOME": str(home), "PRIME_API_KEY": CANARY}
        done = toy.run("run", "pair", "second", *address, **variables)
    assert done.code == 0, done.err
    assert seen
    assert not any(CANARY.encode() in environ or str(home).encode() in environ for environ in seen)
    assert all(b"HF_HUB_OFFLINE" in environ or b"HF_HOME" in environ for environ in seen)


def test_a_key_shows_itself_only_when_asked_by_name(tmp_path: Path) -> None:
    shown = Key(CANARY)
    assert CANARY not in f"{shown} {shown!r} {[shown]} {vars(Key)}"
    assert shown.reveal() == CANARY
    path = tmp_path / "key"
    made = make_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path).reveal() == made.reveal() == path.read_text()
    with pytest.raises(FileExistsError):
        make_key_file(path)
    path.chmod(0o400)
    assert read_key(path).reveal() == made.reveal()
