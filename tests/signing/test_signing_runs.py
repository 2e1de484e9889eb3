"""A run is signed when it has ended: by the key that was named, over its manifest, from its own directory."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from assay.signing.gather import statement_of
from assay.signing.key import make_key
from assay.signing.verify import Verified, named_key, verify
from signed import key_in
from toy_checkout import Done, Toy, until


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return key_in(tmp_path_factory.mktemp("key"))


def run(toy: Toy, key: tuple[Path, Path], runs: Path, *words: str | Path, **variables: str) -> Done:
    return toy.run(*words, "--runs", runs, "--json", ASSAY_SIGNING_KEY_FILE=str(key[0]), **variables)


def checked(done: Done, key: tuple[Path, Path]) -> Verified:
    """The run's statement, verified, and made again from the run."""
    found = verify(done.run, key[1].read_bytes())
    assert found.statement == statement_of(done.run)
    assert found.statement.payload() == statement_of(done.run).payload()
    return found


def test_a_profile_s_run_is_signed_and_its_statement_follows_from_its_directory(
    toy: Toy, key: tuple[Path, Path], runs: Path
) -> None:
    done = run(toy, key, runs, "run", "toy")
    assert done.code == 0, done.err
    found = checked(done, key)
    assert done.json["signed_by"] == found.key_id == named_key(done.run)
    assert f"signed: by the key {found.key_id}" in done.err
    said, summary = found.predicate, json.loads((done.run / "summary.json").read_text("utf-8"))
    assert (said.kind, said.name, said.status, said.resumed) == ("profile", "toy", "done", 0)
    assert [entry.name for entry in said.asked] == ["count"]
    assert said.asked[0].counts.model_dump() == summary["counts"]
    assert [(score.family, score.score, score.low, score.high) for score in said.scores] == [
        (family["family"], family["score"], family["low"], family["high"]) for family in summary["families"]
    ]
    names = {material.name for material in said.materials}
    assert {"model:toy-model", "environment:toy", "tree:eval/assay", "launch:count/entry.toml"} <= names
    assert [server.record.name for server in said.servers] == [
        f"provenance/server/count.{when}.json" for when in ("after", "before")
    ]


def test_a_cancelled_run_and_a_failed_one_are_signed_as_what_they_are(
    toy: Toy, key: tuple[Path, Path], runs: Path
) -> None:
    with toy.faults(delay_s=0.3):
        command = toy.start("run", "toy", "--runs", runs, ASSAY_SIGNING_KEY_FILE=str(key[0]))
        path = command.run()
        until(lambda: (path / "count/traces.jsonl").exists())
        command.signal(signal.SIGINT)
        assert command.wait().code == 6
    found = verify(path, key[1].read_bytes())
    assert found.statement == statement_of(path)
    assert found.predicate.status == "cancelled"
    assert found.predicate.asked[0].counts.missing > 0
    with toy.faults(dies_after=2), toy.entry("toy", "count", {}, concurrent=1):
        done = run(toy, key, runs, "run", "toy")
    assert done.code == 5, done.err
    said = checked(done, key).predicate
    assert (said.status, said.problems > 0) == ("failed", True)


def test_nothing_of_the_key_stands_in_what_a_run_leaves(
    toy: Toy, key: tuple[Path, Path], runs: Path, tmp_path: Path
) -> None:
    unlock = tmp_path / "unlock"
    unlock.write_text("correct horse battery")
    unlock.chmod(0o600)
    locked, public, _ = make_key(tmp_path, "locked", b"correct horse battery")
    variables = {"ASSAY_SIGNING_KEY_FILE": str(locked), "ASSAY_SIGNING_PASSPHRASE_FILE": str(unlock)}
    done = toy.run("run", "toy", "--runs", runs, "--json", **variables)
    assert done.code == 0, done.err
    assert verify(done.run, public.read_bytes()).key_id == done.json["signed_by"]
    secrets = [str(locked), str(unlock), "correct horse battery", locked.read_text("ascii").splitlines()[1]]
    files = [path for path in (*done.run.rglob("*"), *(toy.root / ".assay").rglob("*")) if path.is_file()]
    assert len(files) > 20
    for text in (done.out, done.err, *(path.read_text("utf-8", "replace") for path in files)):
        assert not [secret for secret in secrets if secret in text]
