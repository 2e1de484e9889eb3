"""The flake, driven by Nix itself over a stand-in for nixpkgs: what it offers, and what a shell of it is.

The real nixpkgs is far away: that its packages have these names and versions is not shown here.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nix_tool import Nix

from assay.digest import sha256_file
from assay.setup import tool
from assay.shell import read_lock

pytestmark = pytest.mark.slow

SYSTEM = f"{platform.machine()}-linux"
SHELLS = [".", ".#cuda"] if SYSTEM == "x86_64-linux" else ["."]
Alter = Callable[[str, str, str], Path]


def answer(text: str) -> Any:
    """The JSON object that is the last line of what a command printed."""
    return json.loads(text.splitlines()[-1])


def shell_variables(text: str) -> dict[str, str]:
    """The environment that `env -0` printed."""
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def test_the_lock_is_the_flake_s_and_is_read_without_a_network(nix: Nix, checkout: Path) -> None:
    done = nix.plain(checkout, "flake", "metadata", ".", "--no-update-lock-file", "--json")
    assert done.returncode == 0, done.stderr
    locked = read_lock(checkout / "flake.lock")
    assert locked is not None
    node = json.loads(done.stdout)["locks"]["nodes"]["nixpkgs"]["locked"]
    assert (node["rev"], node["narHash"]) == (locked.rev, locked.nar_hash)


def test_nix_itself_notices_a_flake_that_asks_for_something_else(nix: Nix, altered: Alter) -> None:
    locked = read_lock()
    assert locked is not None
    copy = altered("flake.nix", f"github:NixOS/nixpkgs/{locked.rev}", f"path:{nix.nixpkgs}")
    done = nix.plain(copy, "flake", "metadata", ".", "--no-update-lock-file")
    assert done.returncode != 0
    assert "requires lock file changes" in done.stderr


def test_the_flake_offers_two_shells_a_doctor_checks_and_a_formatter(nix: Nix, checkout: Path) -> None:
    done = nix.run(checkout, "flake", "show", ".", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert set(shown) == {"apps", "checks", "devShells", "formatter"}
    assert set(shown["devShells"]["x86_64-linux"]) == {"default", "cuda"}
    assert set(shown["devShells"]["aarch64-linux"]) == {"default"}
    for system in ("x86_64-linux", "aarch64-linux"):
        assert set(shown["apps"][system]) == {"doctor"}
        assert set(shown["checks"][system]) == {"doctor", "scripts", "shell", "versions"}
        assert shown["formatter"][system]["type"] == "derivation"


@pytest.fixture(scope="module")
def both_pythons(nix: Nix) -> bool:
    """Whether the stand-in could be given the two Pythons."""
    programs = json.loads((nix.nixpkgs / "host.json").read_text())["programs"]
    return bool(programs["python3.12"] and programs["python3.13"])


def test_the_checks_pass_where_the_machine_has_what_they_try(
    nix: Nix, checkout: Path, both_pythons: bool
) -> None:
    done = nix.run(checkout, "flake", "check", ".")
    if both_pythons:
        assert done.returncode == 0, done.stderr
    else:
        # Then it is the check of the versions that says so, and no other.
        assert "this machine has none" in done.stderr
        assert "assay-versions" in done.stderr


def test_a_faulty_script_fails_the_checks(nix: Nix, altered: Alter) -> None:
    copy = altered("eval/scripts/audit", 'start audit "$@"', "start audit $@")
    done = nix.run(copy, "build", f".#checks.{SYSTEM}.scripts", "--no-link")
    assert done.returncode != 0
    assert "SC2068" in done.stderr


def test_another_uv_than_the_project_s_is_no_shell(nix: Nix, altered: Alter) -> None:
    copy = altered("eval/assay/setup/tools.in", tool.VERSION, "0.12.99")
    done = nix.run(copy, "develop", ".", after=("--command", "true"))
    assert done.returncode != 0
    assert f"nixpkgs has uv {tool.VERSION}, but tools.in asks for uv==0.12.99" in done.stderr


def test_the_shell_s_programs_come_from_the_store_and_its_variables_say_what_it_is(
    nix: Nix, checkout: Path
) -> None:
    said = nix.develop(
        *(checkout, ".", "env", "-0"),
        PYTHONPATH="/elsewhere",
        PYTHONHOME="/elsewhere",
    )
    found = shell_variables(said)
    assert found["ASSAY_NIX_SHELL"] == "default"
    assert found["ASSAY_NIXPKGS_REV"] == ""
    assert found["ASSAY_FLAKE_LOCK_SHA256"] == sha256_file(checkout / "flake.lock")
    assert found["ASSAY_PYTHON"].startswith(f"{nix.store}/")
    assert found["ASSAY_PYTHON"].endswith("/bin/python3.12")
    assert found["ASSAY_PYTHON_DEV"].endswith("/bin/python3.13")
    assert (found["UV_PYTHON_DOWNLOADS"], found["UV_PYTHON_PREFERENCE"]) == ("never", "only-system")
    for name in ("PYTHONPATH", "PYTHONHOME", "SOURCE_DATE_EPOCH", "LD_LIBRARY_PATH", "UV_PYTHON"):
        assert name not in found
    first = found["PATH"].split(os.pathsep)
    for name in ("python3.12", "python3.13", "uv", "git", "jq", "docker", "shellcheck", "c++"):
        place = next(folder for folder in first if (Path(folder) / name).exists())
        assert place.startswith(f"{nix.store}/"), name


def test_the_shell_adds_nothing_to_what_a_command_prints(nix: Nix, checkout: Path) -> None:
    assert nix.develop(checkout, ".", "echo", "alone") == "alone\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_of_another_nixpkgs_is_an_override_and_says_why(nix: Nix, checkout: Path, shell: str) -> None:
    command = ("--command", "eval/scripts/doctor", "--json")
    said = nix.run(checkout, "develop", shell, after=command).stdout
    found = answer(said)
    assert (found["shell"]["kind"], found["shell"]["pinned"]) == ("nix-override", False)
    assert found["shell"]["name"] == ("cuda" if "cuda" in shell else "default")
    why = "; ".join(found["shell"]["why"])
    assert "its nixpkgs has no revision" in why
    assert "git is " in why
    assert "shell: nix-override" in said
    for item in found["tools"]:
        assert item["pinned_by"] != "flake.lock"
        if item["name"] in ("uv", "git", "jq"):
            assert item["found"].startswith(f"{nix.store}/")
            assert item["store_path"] is None


def test_only_the_cuda_shell_has_cuda_s_compiler_and_the_one_it_accepts(nix: Nix, checkout: Path) -> None:
    look = "type -p nvcc c++; echo $ASSAY_LIBRARY_PATH"
    if ".#cuda" in SHELLS:
        nvcc, compiler, libraries = nix.develop(checkout, ".#cuda", "bash", "-c", look).splitlines()
        assert nvcc.endswith("-cuda_nvcc-stand-in/bin/nvcc")
        assert compiler.endswith("-gcc-wrapper-for-cuda-stand-in/bin/c++")
        assert libraries.endswith(":/run/opengl-driver/lib")
    else:
        done = nix.run(checkout, "develop", ".#cuda", after=("--command", "true"))
        assert "does not provide attribute" in done.stderr
    words = nix.develop(checkout, ".", "bash", "-c", look).splitlines()
    assert not any(word.startswith(str(nix.store)) and word.endswith("/nvcc") for word in words)
    assert not words[-1].endswith("driver/lib")


def test_nothing_unfree_is_allowed_but_cuda(nix: Nix, altered: Alter) -> None:
    copy = altered("flake.nix", "(cuda|libcu|libnv)", "(libcu|libnv)")
    done = nix.run(copy, "eval", ".#devShells.x86_64-linux.cuda.drvPath")
    assert done.returncode != 0
    assert "has an unfree licence, which nothing allows" in done.stderr


def test_run_doctor_tells_about_the_checkout_it_is_run_in(nix: Nix, checkout: Path) -> None:
    done = nix.run(checkout, "run", ".#doctor", after=("--", "--json"))
    found = answer(done.stdout)
    assert found["shell"]["kind"] == "nix-override"
    assert done.returncode == (3 if found["lacking"] else 0)
    details = {item["name"]: item for item in found["findings"]}
    assert str(checkout) in details["disk"]["detail"]
    assert details["environment assay"]["remedy"] == "eval/scripts/setup assay"


def test_run_doctor_outside_a_checkout_says_where_to_go(nix: Nix, checkout: Path, tmp_path: Path) -> None:
    done = nix.run(tmp_path, "run", f"git+file://{checkout}#doctor")
    assert done.returncode == 3
    assert "is in no checkout of Assay" in done.stderr


def test_a_set_up_inside_the_shell_takes_its_python_and_its_uv(
    nix: Nix, altered: Alter, both_pythons: bool
) -> None:
    checkout = altered("README.md", "# Assay", "# Assay")
    # There is no index here, so it ends where the first package would be fetched.
    command = ("--command", "eval/scripts/setup", "assay", "--json")
    done = nix.run(checkout, "develop", ".", after=command, UV_OFFLINE="1")
    assert answer(done.stdout)["status"] == "error", done.stderr
    assert done.returncode == 3
    if both_pythons:
        assert "assay: Python 3.12." in done.stderr
        assert "an empty environment with Python 3.12." in done.stderr
        assert "from its wheel" not in done.stderr
    else:
        assert "python3.12 cannot be used" in done.stderr
