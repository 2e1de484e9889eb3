"""Upstream sources are frozen inputs of a run: verified before it and after each entry, and audited again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from standin import Reply, StandIn
from toy_checkout import Toy

REPOSITORY = "https://git.example/team/envs"
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "upstream" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "upstream@localhost" for role in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def sourced(toy: Toy) -> Iterator[Path]:
    """The checkout of a source that the toy evaluator is pinned to, while the test runs."""
    source = toy.root / "eval/.sources/envs"
    (source / "envs").mkdir(parents=True)
    (source / "envs/__init__.py").write_text("answer = 42\n")
    git(source, "init", "--quiet", "--template=")
    git(source, "remote", "add", "origin", REPOSITORY)
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "--message", "envs")
    revision = git(source, "rev-parse", "HEAD")
    lock = toy.root / "prime-envs.lock"
    lock.write_text(f'[[source]]\nname = "envs"\nrepository = "{REPOSITORY}"\nrevision = "{revision}"\n')
    description = toy.root / "eval/evaluators/toy/evaluator.toml"
    before = description.read_text()
    description.write_text(before.replace("\n[environment]", 'sources = ["envs"]\n\n[environment]', 1))
    yield source
    description.write_text(before)
    lock.unlink()
    shutil.rmtree(source.parent)


def words(server: StandIn, runs: Path) -> list[str | Path]:
    return ["run", "pair", "--base-url", server.base_url, "--model", server.model, "--runs", runs, "--json"]


def evidence(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(check for check in answer["checks"] if check["name"] == "checkout")
    return found


def test_a_source_is_frozen_and_its_lock_recorded_and_an_audit_looks_again(
    toy: Toy, runs: Path, sourced: Path
) -> None:
    with StandIn() as server:
        done = toy.run(*words(server, runs))
    assert done.code == 0, done.err
    run = Path(done.json["run_dir"])
    inputs = [
        json.loads((run / f"provenance/inputs.{when}.json").read_text())["inputs"]
        for when in ("before", "after-first", "after-second")
    ]
    assert {len(found["source:envs"]) for found in inputs} == {64}
    assert (run / "provenance/pins/prime-envs.lock").read_bytes() == (
        toy.root / "prime-envs.lock"
    ).read_bytes()
    assert evidence(toy.run("audit", run, "--json").json)["verdict"] == "PASS"
    (sourced / "envs/__init__.py").write_text("answer = 43\n")
    found = evidence(toy.run("audit", run, "--json").json)
    assert found["verdict"] == "FAIL"
    assert any("envs/__init__.py is edited" in line for line in found["evidence"])
    moved = sourced.with_name("moved")
    sourced.rename(moved)
    found = evidence(toy.run("audit", run, "--json").json)
    moved.rename(sourced)
    assert found["verdict"] == "UNKNOWN"
    assert any("the source envs is not here" in line for line in found["evidence"])


def test_a_source_that_is_edited_in_mid_run_fails_it(toy: Toy, runs: Path, sourced: Path) -> None:
    def reply(number: int, body: dict[str, Any]) -> Reply:
        (sourced / "envs/extra.py").write_text("")
        return Reply()

    with StandIn(reply=reply) as server:
        done = toy.run(*words(server, runs))
    assert done.code == 5
    assert any("envs/extra.py is not of the commit" in problem for problem in done.json["problems"])


def test_a_run_does_not_begin_with_a_source_that_is_not_as_pinned(
    toy: Toy, runs: Path, sourced: Path
) -> None:
    (sourced / "envs/__init__.py").unlink()
    with StandIn() as server:
        done = toy.run(*words(server, runs))
        assert server.requests == []
    assert done.code == 5
    assert "envs/__init__.py is missing" in done.err
