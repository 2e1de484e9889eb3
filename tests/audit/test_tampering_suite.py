"""Changes to a suite's run by the operator himself, who makes the manifest again and signs it with his key.

Each is found by the check that names it. The run has a job that asks nobody, one that asks the server which
the run started itself, and a whole run of a profile inside.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from altered import Altered
from suite_changes import CHANGES
from test_audit_files import audited

from assay.signing.key import load_signing_key
from assay.signing.sign import sign_run
from toy_checkout import Toy

pytestmark = pytest.mark.slow

SUITE = """\
description = "three jobs of a test"

[target.nobody]
protocol = "none"
max_concurrency = 2

[target.own]
serve = "toy-model"
max_concurrency = 2
provenance = {engine = "a toy"}

[[job]]
id = "quiet"
backend = "mock"
dataset = "mock"
target = "nobody"
backend_args = {items = 6, wrong_every = 2}

[[job]]
id = "asking"
backend = "mock"
dataset = "mock"
target = "own"
repeats = 2
generation = {temperature = 0.5, max_tokens = 9}
backend_args = {items = 4, ask = true}

[[job]]
id = "inside"
backend = "verifiers"
dataset = "pair/first"
target = "own"
repeats = 2
backend_args = {runtime = "subprocess"}
"""


@pytest.fixture(scope="module")
def keys(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The operator's key: the private file and the public one."""
    folder = tmp_path_factory.mktemp("keys")
    done = toy.run("keys", "new", "--name", "operator", "--folder", folder, "--json")
    assert done.code == 0, done.err
    (public,) = folder.glob("*.pub.pem")
    (private,) = (path for path in folder.iterdir() if path != public)
    return private, public


@pytest.fixture(scope="module")
def whole(toy: Toy, keys: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest run, signed."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "three.toml").write_text(SUITE)
    done = toy.run(
        *("run", "--suite", folder / "three.toml", "--runs", folder, "--json"),
        ASSAY_SIGNING_KEY_FILE=str(keys[0]),
    )
    assert done.code == 0, done.err
    return Path(done.json["run_dir"])


def test_an_honest_suite_s_run_verifies_and_every_check_but_the_networks_can_be_told(
    toy: Toy, whole: Path, keys: tuple[Path, Path]
) -> None:
    code, answer = audited(toy, whole, "--key", str(keys[1]))
    verdicts = {check["name"]: check["verdict"] for check in answer["checks"]}
    assert (code, answer["failed"]) == (0, []), answer["checks"]
    assert {name for name, verdict in verdicts.items() if verdict == "UNKNOWN"} == {
        "inside: container",
        "inside: isolation",
    }
    assert {"launch", "answers", "tasks", "inner runs", "inside: rows", "inside: requests"} <= verdicts.keys()


def test_a_run_verifies_however_its_place_is_written(toy: Toy, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "by-way-of").symlink_to(whole.parent)
    relative = os.path.relpath(whole, toy.root)
    for run in (Path(relative), tmp_path / "by-way-of" / whole.name):
        code, answer = audited(toy, run)
        assert (code, answer["failed"]) == (0, []), (run, answer["checks"])


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_by_the_operator_is_named_by_its_check(
    toy: Toy, whole: Path, keys: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    change, check, said = CHANGES[name]
    run = tmp_path / whole.name
    shutil.copytree(whole, run, symlinks=True)
    altered = Altered(run)
    change(altered)
    altered.reseal()
    sign_run(run, load_signing_key(keys[0]))
    code, answer = audited(toy, run, "--key", str(keys[1]))
    assert code == 5
    found = {each["name"]: each for each in answer["checks"]}
    assert (found["signature"]["verdict"], found["files"]["verdict"]) == ("PASS", "PASS")
    assert found[check]["verdict"] == "FAIL", found[check]
    assert said in "\n".join(found[check]["evidence"])
