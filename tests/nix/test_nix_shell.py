"""What counts as the pinned shell: the locked nixpkgs and programs out of the Nix store, and nothing less."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from assay import shell as shells
from assay.setup import tool
from assay.shell import PROVIDED, Lock, judge, python_variables, read_lock
from assay.tools import Program, program, programs, python_digest, store_path, version
from tiny_checkout import Tiny

LOCK = Lock(sha256="5" * 64, rev="d" * 40, nar_hash="sha256-locked")
HASH = "0123456789abcdfghijklmnpqrsvwxyz"
CLAIMS = {
    "ASSAY_NIX_SHELL": "default",
    "ASSAY_NIXPKGS_REV": LOCK.rev,
    "ASSAY_NIXPKGS_NAR_HASH": LOCK.nar_hash,
    "ASSAY_FLAKE_LOCK_SHA256": LOCK.sha256,
}


def stored(name: str) -> Program:
    """A program out of the Nix store."""
    place = f"/nix/store/{HASH}-{name}-1.0"
    return Program(name, f"{place}/bin/{name}", f"{place}/bin/{name}", "1.0", "0" * 64, place)


def own(name: str) -> Program:
    """One of the machine's own."""
    return Program(name, f"/usr/bin/{name}", f"/usr/bin/{name}", "1.0", "0" * 64, None)


STORED: dict[str, Program | None] = {name: stored(name) for name in PROVIDED}
OWN: dict[str, Program | None] = {name: own(name) for name in PROVIDED}


def test_the_locked_nixpkgs_and_programs_from_the_store_are_pinned() -> None:
    found = judge(STORED, CLAIMS, LOCK)
    assert (found.kind, found.pinned, found.why, found.name) == ("nix", True, (), "default")
    assert found.describe()["pinned"] is True


def test_a_shell_that_claims_nothing_is_the_host_whatever_it_has() -> None:
    for programs_there in (STORED, OWN):
        found = judge(programs_there, {}, LOCK)
        assert (found.kind, found.pinned, found.why, found.name) == ("host", False, (), None)


def test_variables_alone_are_the_host_and_what_speaks_against_them_is_said() -> None:
    found = judge(OWN, CLAIMS, LOCK)
    assert (found.kind, found.pinned, found.name) == ("host", False, None)
    assert found.why[0] == 'ASSAY_NIX_SHELL says "default", but no program comes from a Nix store'
    for name in PROVIDED:
        assert f"{name} is /usr/bin/{name}, which is not in the Nix store" in found.why


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ASSAY_NIXPKGS_REV": "e" * 40}, f"revision {'e' * 40}, but flake.lock names {LOCK.rev}"),
        ({"ASSAY_NIXPKGS_REV": ""}, "its nixpkgs has no revision"),
        ({"ASSAY_NIXPKGS_NAR_HASH": "sha256-other"}, "the content hash sha256-other"),
        ({"ASSAY_NIXPKGS_NAR_HASH": ""}, "the content hash nothing"),
        ({"ASSAY_FLAKE_LOCK_SHA256": "6" * 64}, "flake.lock is not the one that it was entered with"),
    ],
)
def test_a_shell_of_another_nixpkgs_is_an_override(changed: dict[str, str], said: str) -> None:
    found = judge(STORED, {**CLAIMS, **changed}, LOCK)
    assert (found.kind, found.pinned) == ("nix-override", False)
    assert [reason for reason in found.why if said in reason]
    assert len(found.why) == 1


@pytest.mark.parametrize("name", PROVIDED)
def test_one_program_from_elsewhere_or_none_at_all_is_an_override(name: str) -> None:
    found = judge({**STORED, name: own(name)}, CLAIMS, LOCK)
    assert found.kind == "nix-override"
    assert found.why == (f"{name} is /usr/bin/{name}, which is not in the Nix store",)
    assert judge({**STORED, name: None}, CLAIMS, LOCK).why == (f"{name} is not there",)


def test_without_a_lock_nothing_is_pinned(tmp_path: Path) -> None:
    assert judge(STORED, CLAIMS, None).why == ("flake.lock is missing or names no nixpkgs",)
    (tmp_path / "torn").write_text('{"nodes"')
    (tmp_path / "empty").write_text('{"nodes": {"nixpkgs": {"locked": null}}}')
    for name in ("absent", "torn", "empty"):
        assert read_lock(tmp_path / name) is None


def test_links_in_another_store_are_an_override_never_pinned() -> None:
    linked = {
        name: replace(own(name), found=f"/elsewhere/store/{HASH}-{name}/bin/{name}") for name in PROVIDED
    }
    found = judge(linked, {**CLAIMS, "NIX_STORE": "/elsewhere/store"}, LOCK)
    assert (found.kind, found.pinned) == ("nix-override", False)
    assert len(found.why) == len(PROVIDED)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{HASH}-jq-1.7/bin/jq", f"{HASH}-jq-1.7"),
        (f"{HASH}-jq-1.7", f"{HASH}-jq-1.7"),
        ("jq-1.7/bin/jq", None),
        (f"{HASH[:-1]}-jq/bin/jq", None),
        (f"{HASH[:-1]}e-jq/bin/jq", None),
        (f".links/{HASH}", None),
        ("", None),
    ],
)
def test_only_a_store_path_is_one(tmp_path: Path, path: str, expected: str | None) -> None:
    found = store_path(tmp_path / path, tmp_path)
    assert found == (str(tmp_path / expected) if expected else None)
    assert store_path(tmp_path / path, tmp_path / "elsewhere") is None


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_program_is_the_file_behind_the_link(tmp_path: Path) -> None:
    real = script(tmp_path / f"store/{HASH}-jq-1.7/bin/jq", "echo jq-1.7.1")
    link = tmp_path / "bin/jq"
    link.parent.mkdir()
    link.symlink_to(real)
    found = program("jq", link, tmp_path / "store")
    assert found is not None
    assert (found.found, found.path, found.version) == (str(link), str(real), "1.7.1")
    assert found.store_path == str(tmp_path / f"store/{HASH}-jq-1.7")
    real.write_text("#!/bin/sh\necho jq-1.8\n")
    again = program("jq", link)
    assert again is not None
    assert again.sha256 != found.sha256
    assert again.store_path is None
    real.unlink()
    assert program("jq", link) is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("git version 2.39.5", "2.39.5"),
        ("Docker version 28.2.2, build e6534b4", "28.2.2"),
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", "12.2.0"),
        ("ShellCheck - shell script analysis tool\nversion: 0.8.0", "0.8.0"),
        ("Copyright (c) 2005-2025\nCuda compilation tools, release 13.0, V13.0.88", "13.0.88"),
        ("nix (Nix) 2.8.0", "2.8.0"),
        ("no number", None),
    ],
)
def test_a_version_is_the_number_that_the_program_says(
    tmp_path: Path, said: str, expected: str | None
) -> None:
    assert version(str(script(tmp_path / "it", f"cat <<'END'\n{said}\nEND"))) == expected


def test_a_program_that_does_not_start_says_no_version(tmp_path: Path) -> None:
    assert version(str(script(tmp_path / "it", "echo 1.0; exit 127"))) is None
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    assert version(str(broken)) is None


def test_a_run_s_programs_are_those_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("git", "g++", "nvcc"):
        script(tmp_path / "bin" / name, "echo 1.2.3")
    other = script(tmp_path / "other/nvcc", "echo 4.5.6")
    for name in ("NVCC", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = programs(None)
    there = {name: item.path for name, item in found.items() if item is not None}
    expected = {"git": "git", "c++": "g++", "nvcc": "nvcc"}
    assert there == {name: str(tmp_path / "bin" / file) for name, file in expected.items()}
    monkeypatch.setenv("NVCC", str(other))
    asked = programs(None)["nvcc"]
    assert asked is not None
    assert asked.version == "4.5.6"


def test_the_digest_of_a_python_changes_with_its_bytes(tmp_path: Path) -> None:
    python = script(tmp_path / "python", """echo '["3.12.4", null]'""")
    release, digest = python_digest(python)
    assert release == "3.12.4"
    with python.open("a") as file:
        file.write("# another\n")
    assert python_digest(python)[1] != digest


def test_in_the_pinned_shell_its_own_uv_is_used_before_the_one_that_a_set_up_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = script(tmp_path / "left/uv", f"echo uv {tool.VERSION}")
    shell = script(tmp_path / "shell/uv", f"echo uv {tool.VERSION}")
    monkeypatch.setattr(tool, "ours", lambda: left)
    monkeypatch.setenv("PATH", str(shell.parent))
    assert tool.installed() == left
    monkeypatch.setattr(tool, "store_path", lambda path: str(path.parent))
    assert tool.installed() == shell
    shell.write_text("#!/bin/sh\necho uv 0.0.1\n")
    assert tool.installed() == left


def test_only_an_environment_s_python_gets_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert python_variables({}) == {}
    assert python_variables({"ASSAY_LIBRARY_PATH": "/a:/b"}) == {"LD_LIBRARY_PATH": "/a:/b"}
    monkeypatch.setenv("ASSAY_LIBRARY_PATH", "/a:/b")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    shells.keep_from_children()
    assert os.environ["LD_LIBRARY_PATH"] == "/mine"
    monkeypatch.setenv("LD_LIBRARY_PATH", "/a:/b")
    shells.keep_from_children()
    assert "LD_LIBRARY_PATH" not in os.environ


@pytest.mark.slow
def test_a_command_s_python_is_started_with_the_libraries_and_its_children_without(
    tiny: Tiny, tmp_path: Path
) -> None:
    done = tiny.setup()
    assert done.returncode == 0, done.stderr
    git = script(
        tmp_path / "bin/git",
        f"""tr '\\0' '\\n' < /proc/$PPID/environ | grep ^LD_LIBRARY_PATH= > "{tmp_path}/parent"
echo "own=${{LD_LIBRARY_PATH-none}}" > "{tmp_path}/child"
echo git version 2.0.0""",
    )
    variables = {
        "PATH": f"{git.parent}{os.pathsep}{tiny.environment()['PATH']}",
        "ASSAY_LIBRARY_PATH": str(tmp_path / "libraries"),
        "LD_LIBRARY_PATH": "",
    }
    for command in ("eval/scripts/doctor", ".venv/bin/assay"):
        words = ("--json",) if command == "eval/scripts/doctor" else ("doctor", "--json")
        done = tiny.run(command, *words, **variables)
        found = {item["name"]: item for item in json.loads(done.stdout.splitlines()[-1])["tools"]}
        assert found["git"]["version"] == "2.0.0"
        assert (tmp_path / "parent").read_text() == f"LD_LIBRARY_PATH={tmp_path / 'libraries'}\n"
        assert (tmp_path / "child").read_text() == "own=none\n"
        (tmp_path / "parent").unlink()
