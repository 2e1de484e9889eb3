"""An audit asks nobody: it runs without a network, and touches no socket; and what it writes, and where."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from test_audit_files import audited, evidence

from assay.signing.key import load_public_key
from assay.signing.vsa import PREDICATE_TYPE, open_summary
from signed import key_in
from toy_checkout import Done, Toy

HOOKED = """\
import sys

def refuse(event, arguments):
    # At its import urllib3 asks the system whether it has IPv6, with a socket that nobody can reach.
    if (event, arguments[1:]) == ("socket.bind", (("::1", 0),)) or event == "socket.__new__":
        return
    if event.startswith("socket.") and event != "socket.gethostname":
        sys.stderr.write(f"SOCKET {event} {arguments}\\n")
        sys.stderr.flush()
        import os
        os._exit(99)

sys.addaudithook(refuse)
from assay.cli import main
sys.exit(main(sys.argv[1:]))
"""

SUITE = """\
description = "asked and quiet"

[target.own]
serve = "toy-model"
max_concurrency = 2

[[job]]
id = "asking"
backend = "mock"
dataset = "mock"
target = "own"
backend_args = {items = 3, ask = true}
"""

Keys = tuple[Path, Path]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The operator's key."""
    return key_in(tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """An auditor's key."""
    return key_in(tmp_path_factory.mktemp("auditor"))


@pytest.fixture(scope="module")
def profile(toy: Toy, key: Keys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run of a profile."""
    done = toy.run(
        "run", "toy", "--runs", tmp_path_factory.mktemp("runs"), "--json", ASSAY_SIGNING_KEY_FILE=str(key[0])
    )
    assert done.code == 0, done.err
    return done.run


@pytest.fixture(scope="module")
def suite(toy: Toy, key: Keys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run of a suite."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "asked.toml").write_text(SUITE)
    words = ("run", "--suite", folder / "asked.toml", "--runs", folder, "--json")
    done = toy.run(*words, ASSAY_SIGNING_KEY_FILE=str(key[0]))
    assert done.code == 0, done.err
    return done.run


def apart(toy: Toy, *words: str | Path) -> Done:
    """A command in a network of its own, which has no interface that is up."""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    return toy.program(*unshare, *toy.words(*words))


def hooked(toy: Toy, *words: str | Path) -> Done:
    """A command that ends at once, with 99, when it touches a socket."""
    return toy.program(sys.executable, "-c", HOOKED, *words)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["profile", "suite"])
def test_an_audit_needs_no_network(toy: Toy, key: Keys, kind: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(kind)
    # Of the toy evaluator nothing can be scored again.
    more = ["--rescore"] if kind == "suite" else []
    done = apart(toy, "audit", run, "--key", key[1], *more, "--json")
    assert done.code == 0, done.out + done.err
    here = audited(toy, run, "--key", str(key[1]), *more)[1]
    assert done.json == here
    found = {check["name"]: check["verdict"] for check in here["checks"]}
    assert found.get("rescore asking", "PASS") == "PASS"
    assert ("rescore asking" in found) is (kind == "suite")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["profile", "suite"])
def test_an_audit_touches_no_socket(toy: Toy, key: Keys, kind: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(kind)
    done = hooked(toy, "audit", run, "--key", key[1], "--json")
    assert (done.code, done.json["failed"]) == (0, []), done.err


def test_the_hook_that_watches_for_sockets_sees_one(toy: Toy) -> None:
    with_socket = HOOKED.replace(
        "from assay.cli import main", 'import socket; socket.getaddrinfo("localhost", 1); main = len'
    )
    done = toy.program(sys.executable, "-c", with_socket, "audit")
    assert (done.code, "SOCKET socket.getaddrinfo" in done.err) == (99, True)


def test_only_the_given_key_is_believed(
    toy: Toy, profile: Path, key: Keys, auditor: Keys, honest: Path
) -> None:
    code, answer = audited(toy, profile, "--key", str(key[1]))
    found = {check["name"]: check for check in answer["checks"]}
    assert code == 0
    assert (found["signature"]["verdict"], found["statement"]["verdict"]) == ("PASS", "PASS")
    assert load_public_key(key[1]).key_id in found["signature"]["evidence"][0]
    code, answer = audited(toy, profile, "--key", str(auditor[1]))
    assert (code, answer["failed"]) == (5, ["signature"])
    code, answer = audited(toy, honest, "--key", str(key[1]))
    assert (code, answer["failed"]) == (5, ["signature"])
    assert "not signed" in evidence(answer, "signature")
    code, answer = audited(toy, profile)
    unknown = {check["name"]: check for check in answer["checks"] if check["verdict"] == "UNKNOWN"}
    assert code == 0
    assert "no key was given" in unknown["signature"]["evidence"][0]
    assert "statement" not in unknown, "what it says is compared all the same"


def test_what_is_no_public_key_is_refused_before_anything_is_read(toy: Toy, profile: Path, key: Keys) -> None:
    for path in (key[0], profile / "summary.json", profile / "nothing.pem"):
        done = toy.run("audit", profile, "--key", path)
        assert done.code == 2, done.out


def test_what_was_found_is_written_as_json_or_signed_by_the_auditor(
    toy: Toy, profile: Path, key: Keys, auditor: Keys, tmp_path: Path
) -> None:
    output = tmp_path / "audit.json"
    words = ("audit", profile, "--key", key[1], "--json", "--output", output)
    done = toy.run(*words)
    assert (done.code, "unsigned" in done.err) == (0, True), done.err
    written = json.loads(output.read_text("utf-8"))
    assert written["schema_version"] == "assay/audit/v1"
    assert written["trusted_key"] == load_public_key(key[1]).key_id
    assert written["checks"] == done.json["checks"]
    assert (written["status"], written["strict"], written["rescored"]) == ("verified", False, False)
    done = toy.run(*words, ASSAY_SIGNING_KEY_FILE=str(auditor[0]))
    assert done.code == 0, done.err
    summary = open_summary(output.read_bytes(), load_public_key(auditor[1]), "audit").predicate
    assert (
        open_summary(output.read_bytes(), load_public_key(auditor[1]), "a").predicate_type == PREDICATE_TYPE
    )
    assert summary["verificationResult"] == "PASSED"
    assert [check["name"] for check in summary["assay_checks"]] == [
        check["name"] for check in done.json["checks"]
    ]


def test_a_failed_audit_says_so_under_the_auditors_key_too(
    toy: Toy, profile: Path, auditor: Keys, tmp_path: Path
) -> None:
    output = tmp_path / "audit.dsse.json"
    done = toy.run(
        *("audit", profile, "--key", auditor[1], "--output", output), ASSAY_SIGNING_KEY_FILE=str(auditor[0])
    )
    assert done.code == 5
    summary = open_summary(output.read_bytes(), load_public_key(auditor[1]), "audit").predicate
    assert summary["verificationResult"] == "FAILED"


@pytest.mark.parametrize("place", ["audit.json", "count/audit.json", "../{run}/audit.json"])
def test_nothing_is_written_into_the_run(toy: Toy, profile: Path, place: str) -> None:
    before = sorted(profile.rglob("*"))
    done = toy.run("audit", profile, "--output", profile / place.format(run=profile.name))
    assert (done.code, "lies inside the run" in done.err) == (2, True), done.err
    assert sorted(profile.rglob("*")) == before
