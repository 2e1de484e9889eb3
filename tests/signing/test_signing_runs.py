"""A run is signed when it has ended: by the key that was named, over its manifest, from its own directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from signed import key_in

from assay.signing.gather import statement_of
from assay.signing.verify import Verified, named_key, verify
from toy_checkout import Done, Toy


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
