"""`doctor` through its script: what is there, what is missing, and what it does not believe."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.digest import sha256_file
from assay.setup import tool
from assay.shell import read_lock
from tiny_checkout import Tiny, base_python

HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def doctor(tiny: Tiny, **variables: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON object, and all that was printed before it."""
    done = tiny.run("eval/scripts/doctor", "--json", **variables)
    assert done.stdout, done.stderr
    *table, last = done.stdout.splitlines()
    return done.returncode, json.loads(last), "\n".join(table)


def tools(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tools of an answer by name."""
    return {item["name"]: item for item in answer["tools"]}


def claims(tiny: Tiny) -> dict[str, str]:
    """What the pinned shell of this checkout would say of itself."""
    lock = read_lock(tiny.root / "flake.lock")
    assert lock is not None
    return {
        "ASSAY_NIX_SHELL": "default",
        "ASSAY_NIXPKGS_REV": lock.rev,
        "ASSAY_NIXPKGS_NAR_HASH": lock.nar_hash,
        "ASSAY_FLAKE_LOCK_SHA256": lock.sha256,
        "IN_NIX_SHELL": "impure",
    }


def path_with(directory: Path, *left_out: str) -> str:
    """A PATH with what the scripts and the doctor call, without the programs named."""
    directory.mkdir()
    wanted = {"bash", "env", "dirname", "cc", "c++", "gcc", "g++", "git", "jq", "ld", "as"} - set(left_out)
    for name in wanted:
        found = shutil.which(name)
        if found is not None:
            (directory / name).symlink_to(found)
    return str(directory)


def test_on_a_host_each_tool_has_a_version_a_path_a_digest_and_no_lock_unless_it_has_one(tiny: Tiny) -> None:
    code, answer, printed = doctor(tiny)
    assert (code, answer["status"]) == (0, "ok"), printed
    assert (answer["shell"]["kind"], answer["shell"]["pinned"], answer["shell"]["why"]) == ("host", False, [])
    found = tools(answer)
    assert {"python", "python 3.13", "uv", "git", "docker", "jq", "cc", "c++", "nvcc", "nix"} <= set(found)
    python = found["python"]
    assert python["path"] == base_python()
    assert python["sha256"] == sha256_file(Path(base_python()))
    assert (python["pinned"], python["needed"]) == (False, True)
    assert found["uv"]["version"] == tool.VERSION
    for name in ("python", "uv", "git", "c++"):
        assert os.path.realpath(found[name]["found"]) == found[name]["path"]
        assert found[name]["store_path"] is None
        assert found[name]["pinned_by"] is None
    assert "shell: host: the machine's own programs\n  -> nix develop . --no-write-lock-file" in printed
    assert "not pinned" in printed


def test_the_uv_of_a_set_up_is_pinned_by_its_lock_and_one_on_path_by_none(tiny: Tiny) -> None:
    home = tiny.root / f".assay/tools/uv-{tool.VERSION}/bin"
    home.mkdir(parents=True)
    shutil.copy(tool.existing().path, home / "uv")
    _, answer, printed = doctor(tiny)
    assert tools(answer)["uv"]["pinned_by"] == "eval/assay/setup/tools.lock"
    assert f"{tool.VERSION}   eval/assay/setup/tools.lock" in printed


def test_what_is_missing_is_told_with_what_to_type(tiny: Tiny, tmp_path: Path) -> None:
    variables = {"PATH": path_with(tmp_path / "bin", "git", "jq", "g++", "c++"), "PYENV_ROOT": str(tmp_path)}
    code, answer, printed = doctor(tiny, **variables)
    assert code == 3
    assert answer["status"] == "lacking"
    assert answer["lacking"] == ["git", "c++"]
    found = tools(answer)
    for name, package in (("git", "git"), ("jq", "jq"), ("docker", "docker.io"), ("c++", "g++")):
        item = found[name]
        assert (item["usable"], item["path"], item["version"], item["pinned"]) == (False, None, None, False)
        assert f"apt-get install {package}" in item["remedy"]
        assert "nix develop . --no-write-lock-file" in item["remedy"]
    assert "LACKS   git " in printed
    assert "not yet jq " in printed
    assert found["uv"]["remedy"] == "eval/scripts/setup assay"
    assert found["python 3.13"]["usable"] == (base_python().endswith("3.13"))


def test_a_tool_that_does_not_start_is_not_there(tiny: Tiny, tmp_path: Path) -> None:
    for name in ("jq", "git"):
        broken = tmp_path / "bin" / name
        broken.parent.mkdir(exist_ok=True)
        broken.write_text("#!/bin/sh\nexit 127\n")
        broken.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{tiny.environment()['PATH']}"
    code, answer, _ = doctor(tiny, PATH=path)
    assert (code, answer["lacking"]) == (3, ["git"])
    assert "tells no version" in tools(answer)["jq"]["problem"]
    assert "exit status 127" in tools(answer)["git"]["problem"]


def test_variables_that_claim_the_pinned_shell_are_not_believed(tiny: Tiny) -> None:
    code, answer, printed = doctor(tiny, **claims(tiny))
    assert code == 0
    shell = answer["shell"]
    assert (shell["kind"], shell["pinned"], shell["name"]) == ("host", False, None)
    assert shell["claimed_rev"] == shell["locked_rev"]
    assert shell["why"][0] == 'ASSAY_NIX_SHELL says "default", but no program comes from a Nix store'
    assert any(reason.startswith(f"python is {base_python()}, which is not") for reason in shell["why"])
    assert not any(item["pinned_by"] == "flake.lock" for item in answer["tools"])
    assert 'ASSAY_NIX_SHELL says "default"' in printed


def test_links_in_a_store_of_one_s_own_do_not_make_the_host_s_programs_pinned(
    tiny: Tiny, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    for name in ("git", "jq", "uv"):
        found = shutil.which(name, path=tiny.environment()["PATH"])
        if found is not None:
            link = store / f"{HASH}-{name}/bin" / name
            link.parent.mkdir(parents=True)
            link.symlink_to(found)
    places = os.pathsep.join(str(path) for path in store.glob("*/bin"))
    path = f"{places}{os.pathsep}{tiny.environment()['PATH']}"
    _, answer, _ = doctor(tiny, **claims(tiny), PATH=path, NIX_STORE=str(store))
    shell = answer["shell"]
    assert (shell["kind"], shell["pinned"], shell["name"]) == ("nix-override", False, "default")
    git = tools(answer)["git"]
    assert git["found"] == str(store / f"{HASH}-git/bin/git")
    assert f"git is {git['path']}, which is not in the Nix store" in shell["why"]
    assert git["pinned"] is False


def test_a_lock_that_was_changed_since_the_shell_was_entered_is_told(tiny: Tiny, tmp_path: Path) -> None:
    variables = claims(tiny)
    lock = tiny.root / "flake.lock"
    lock.write_text(lock.read_text().replace("d482ef84", "00000000"))
    git = shutil.which("git")
    assert git is not None
    link = tmp_path / f"store/{HASH}-git/bin/git"
    link.parent.mkdir(parents=True)
    link.symlink_to(git)
    path = f"{link.parent}{os.pathsep}{tiny.environment()['PATH']}"
    _, answer, _ = doctor(tiny, **variables, PATH=path, NIX_STORE=str(tmp_path / "store"))
    why = "; ".join(answer["shell"]["why"])
    assert "but flake.lock names 00000000" in why
    assert "flake.lock is not the one that it was entered with" in why
    assert answer["shell"]["flake_lock_sha256"] == sha256_file(lock)


def test_before_anything_is_set_up_the_next_command_stands_by_each_thing(tiny: Tiny) -> None:
    _, answer, printed = doctor(tiny)
    details = {item["name"]: item for item in answer["findings"]}
    assert details["environment assay"]["detail"] == "it does not exist yet"
    assert details["environment assay"]["remedy"] == "eval/scripts/setup assay"
    assert "asked once environment assay is set up" in details["Docker engine"]["detail"]
    assert "looked for once environment assay is set up" in details["task data"]["detail"]
    assert "-> eval/scripts/setup assay" in printed


@pytest.mark.slow
def test_the_doctor_changes_nothing_in_a_checkout_that_is_whole(tiny: Tiny) -> None:
    done = tiny.setup()
    assert done.returncode == 0, done.stderr
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in (tiny.root / ".venv").rglob("*"))
    _, answer, _ = doctor(tiny)
    details = {item["name"]: item for item in answer["findings"]}
    assert details["environment assay"]["usable"]
    assert (
        sorted((str(path), path.lstat().st_mtime_ns) for path in (tiny.root / ".venv").rglob("*")) == before
    )
