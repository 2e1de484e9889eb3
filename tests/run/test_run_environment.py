"""What a run records of the machine it was made on: the shell as it really is, each program by its bytes."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from assay.digest import sha256_file
from assay.files import read_json
from assay.shell import read_lock
from toy_checkout import Toy

HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def environment(toy: Toy, runs: Path, **variables: str) -> tuple[Path, dict[str, Any]]:
    """Run the toy on the host, and return its directory and what it recorded of the machine."""
    done = toy.run("run", "toy", "--runtime", "subprocess", "--runs", runs, "--json", **variables)
    assert done.code == 0, done.err
    run = Path(done.json["run_dir"])
    value = read_json(run / "provenance/environment.json")
    assert isinstance(value, dict)
    return run, value


def claims(toy: Toy) -> dict[str, str]:
    """What the pinned shell would say of itself."""
    lock = read_lock(toy.root / "flake.lock")
    assert lock is not None
    return {
        "ASSAY_NIX_SHELL": "default",
        "ASSAY_NIXPKGS_REV": lock.rev,
        "ASSAY_NIXPKGS_NAR_HASH": lock.nar_hash,
        "ASSAY_FLAKE_LOCK_SHA256": lock.sha256,
    }


def test_a_run_records_shell_tools_and_interpreters(toy: Toy, runs: Path) -> None:
    run, value = environment(toy, runs)
    assert (value["kind"], value["shell"]["pinned"], value["shell"]["why"]) == ("host", False, [])
    lock = toy.root / "flake.lock"
    assert value["shell"]["flake_lock_sha256"] == sha256_file(lock)
    assert sha256_file(run / "provenance/pins/flake.lock") == sha256_file(lock)
    frozen = read_json(run / "provenance/inputs.before.json")["inputs"]
    assert frozen["file:flake.lock"] == sha256_file(lock)
    git = shutil.which("git")
    assert git is not None
    recorded = value["tools"]["git"]
    assert (recorded["found"], recorded["path"]) == (git, os.path.realpath(git))
    assert recorded["sha256"] == sha256_file(Path(git).resolve())
    assert recorded["version"]
    assert recorded["store_path"] is None
    python = Path(sys.executable).resolve()
    assert value["python"]["version"] == platform.python_version()
    assert (value["python"]["path"], value["python"]["sha256"]) == (str(python), sha256_file(python))
    evaluator = toy.root / "eval/evaluators/toy/.venv/bin/python"
    assert value["evaluator_python"]["path"] == str(evaluator)
    assert value["evaluator_python"]["digest"] != value["python"]["digest"]


def test_a_run_whose_variables_claim_the_pinned_shell_records_the_host_and_why(toy: Toy, runs: Path) -> None:
    _, value = environment(toy, runs, **claims(toy), IN_NIX_SHELL="impure")
    assert (value["kind"], value["shell"]["pinned"]) == ("host", False)
    assert "no program comes from a Nix store" in value["shell"]["why"][0]
    assert value["shell"]["claimed_rev"] == value["shell"]["locked_rev"]


def test_a_run_in_a_shell_of_links_records_an_override_and_each_program_behind_them(
    toy: Toy, runs: Path, tmp_path: Path
) -> None:
    git = shutil.which("git")
    assert git is not None
    link = tmp_path / f"store/{HASH}-git/bin/git"
    link.parent.mkdir(parents=True)
    link.symlink_to(git)
    path = f"{link.parent}{os.pathsep}{os.environ['PATH']}"
    _, value = environment(toy, runs, **claims(toy), PATH=path, NIX_STORE=str(tmp_path / "store"))
    assert (value["kind"], value["shell"]["pinned"]) == ("nix-override", False)
    assert (value["tools"]["git"]["found"], value["tools"]["git"]["path"]) == (
        str(link),
        os.path.realpath(git),
    )
