"""What the machine must have: interpreters really started, compilers really used, the installer by digest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from assay.bootstrap import find
from assay.errors import PrerequisiteError
from assay.setup import machine, tool
from assay.setup.environments import python_range
from tiny_checkout import Tiny, base_python, pin, write_wheel

FIT: Mapping[str, object] = {
    "path": "/usr/bin/stand-in",
    "version": [3, 12, 4],
    "implementation": "cpython",
    "cc": "gcc",
    "include": "/usr/include/python3.12",
    "headers": True,
    "library": None,
    "pip": True,
    "ensurepip": True,
    "complete": True,
    "wide": True,
    "free_threaded": False,
}


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def stand_in(place: Path, /, **said: object) -> Path:
    """A program that answers the probe as an interpreter with these properties would."""
    return program(place, f"echo '{json.dumps({**FIT, **said})}'")


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of PATH, on a machine without pyenv."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.delenv("ASSAY_PYTHON", raising=False)
    return tmp_path / "bin"


def test_a_shim_that_fails_is_passed_over(only: Path) -> None:
    program(only / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    stand_in(only / "python3.11", version=[3, 11, 9])
    assert find().release == "3.11.9"


def test_a_shim_first_on_path_does_not_hide_the_same_name_behind_it(
    only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(only / "python3.12", "exit 1")
    stand_in(tmp_path / "second/python3.12")
    monkeypatch.setenv("PATH", f"{only}{os.pathsep}{tmp_path / 'second'}")
    assert find().release == "3.12.4"


def test_pyenv_versions_are_found_without_a_shim(only: Path, tmp_path: Path) -> None:
    stand_in(tmp_path / "pyenv/versions/3.12.4/bin/python3")
    assert find().path == "/usr/bin/stand-in"


def test_what_uv_knows_is_found(only: Path, tmp_path: Path) -> None:
    known = stand_in(tmp_path / "managed/python3")
    program(only / "uv", f"echo {known}")
    assert find().release == "3.12.4"


def test_when_none_fits_each_is_listed_with_why(only: Path, tmp_path: Path) -> None:
    program(only / "python3.13", "echo shimmed >&2; exit 127")
    stand_in(only / "python3.12", headers=False)
    stand_in(only / "python3.11", version=[3, 11, 2], complete=False)
    stand_in(only / "python3", version=[3, 14, 0])
    stand_in(tmp_path / "pyenv/versions/3.13t/bin/python3", version=[3, 13, 1], free_threaded=True)
    program(tmp_path / "pyenv/versions/odd/bin/python3", "echo hello")
    with pytest.raises(PrerequisiteError) as caught:
        find()
    for reason in (
        "python3.13 (PATH) does not start: shimmed",
        "lacks its headers (/usr/include/python3.12/Python.h)",
        "python3.12-dev",
        "built without ssl",
        "is 3.14.0, not 3.11 to 3.13",
        "free-threaded",
        "is not Python",
    ):
        assert reason in caught.value.why, reason
    assert caught.value.exit_code == 3


def test_the_one_asked_for_is_used_or_refused_but_never_replaced(only: Path, tmp_path: Path) -> None:
    stand_in(only / "python3.12")
    old = stand_in(tmp_path / "old", version=[3, 9, 1])
    with pytest.raises(PrerequisiteError, match=r"is 3\.9\.1, not 3\.11 to 3\.13"):
        find(str(old))


def test_where_one_version_fits_the_preferred_python_is_passed_over_unless_it_is_that_one(
    only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exactly = ((3, 12), (3, 12))
    stand_in(only / "python3.13", path="/thirteen", version=[3, 13, 1])
    stand_in(only / "python3.12", path="/twelve", version=[3, 12, 4])
    preferred = stand_in(tmp_path / "preferred", path="/preferred", version=[3, 11, 9])
    monkeypatch.setenv("ASSAY_PYTHON", str(preferred))
    assert find().path == "/preferred"
    assert find(None, (), *exactly).path == "/twelve"
    stand_in(tmp_path / "preferred", path="/preferred", version=[3, 12, 1])
    assert find(None, (), *exactly).path == "/preferred"


def test_where_one_version_fits_and_is_not_there_its_remedy_names_it(only: Path, tmp_path: Path) -> None:
    stand_in(only / "python3.13", version=[3, 13, 1])
    exactly = ((3, 12), (3, 12))
    with pytest.raises(PrerequisiteError, match=r"no usable Python 3\.12 was found") as caught:
        find(None, (), *exactly)
    assert "is 3.13.1, not 3.12" in caught.value.why
    assert "pyenv install 3.12" in caught.value.next
    assert "uv python install 3.12" in caught.value.next
    asked = stand_in(tmp_path / "asked", version=[3, 13, 1])
    with pytest.raises(PrerequisiteError, match=r"is 3\.13\.1, not 3\.12"):
        find(str(asked), (), *exactly)


def test_uv_is_asked_for_the_version_that_fits(only: Path, tmp_path: Path) -> None:
    known = stand_in(tmp_path / "managed/python3")
    program(only / "uv", f'case "$*" in *">=3.12,<3.13"*) echo {known};; *) exit 2;; esac')
    assert find(None, (), (3, 12), (3, 12)).release == "3.12.4"


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        (">=3.11,<3.14", ((3, 11), (3, 13))),
        ("==3.12.*", ((3, 12), (3, 12))),
        (">= 3.12 , < 3.13", ((3, 12),) * 2),
    ],
)
def test_the_range_of_an_evaluator_is_read(text: str, bounds: tuple[tuple[int, int], ...]) -> None:
    assert python_range(text) == bounds
    for wrong in ("3.12", "==3.12", ">=3.11", "==3.*", "==3.12.1"):
        with pytest.raises(ValueError, match="neither of the form"):
            python_range(wrong)


def test_the_command_starts_behind_a_failing_shim(bare: Tiny, tmp_path: Path) -> None:
    for name in ("python3", "python3.13", "python3.12", "python"):
        program(tmp_path / f"shims/{name}", "exit 127")
    path = f"{tmp_path / 'shims'}{os.pathsep}{bare.environment()['PATH']}"
    done = bare.setup("--check", PATH=path, ASSAY_PYTHON="")
    assert done.returncode == 3, done.stderr
    assert "is not set up" in done.stderr


def test_the_command_keeps_its_arguments_and_its_standard_input(bare: Tiny, tmp_path: Path) -> None:
    reader = program(tmp_path / "reader", 'case "$*" in *bootstrap.py*) echo "$*"; cat;; esac')
    done = subprocess.run(
        [bare.root / "eval/scripts/audit", "a run", "--strict"],
        env=bare.environment() | {"ASSAY_PYTHON": str(reader)},
        input="typed",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"-I -S {bare.root}/eval/assay/bootstrap.py audit a run --strict\ntyped"


def test_without_any_python_the_command_says_what_to_install(bare: Tiny, tmp_path: Path) -> None:
    path = minimal_path(tmp_path / "bin")
    done = bare.setup(PATH=path, ASSAY_PYTHON="", PYENV_ROOT=str(tmp_path))
    assert done.returncode == 3
    assert "no Python that starts was found" in done.stderr
    assert "python3-dev" in done.stderr


def minimal_path(directory: Path, *names: str) -> str:
    """A PATH with a shell's few programs and the named ones."""
    directory.mkdir()
    for name in ("bash", "env", "dirname", *names):
        found = shutil.which(name)
        assert found is not None
        (directory / name).symlink_to(found)
    return str(directory)


def test_without_compilers_and_git_all_of_it_is_named_at_once(bare: Tiny, tmp_path: Path) -> None:
    done = bare.setup(PATH=minimal_path(tmp_path / "bin"))
    assert done.returncode == 3, done.stderr
    assert "this machine lacks C compiler and C++ compiler and Git" in done.stderr
    for package in ("gcc", "g++", "git"):
        assert f"apt-get install {package}" in done.stderr
    assert not bare.stamp.exists()


def test_a_compiler_that_does_not_compile_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = program(tmp_path / "broken", "echo 'cc1plus: not found' >&2; exit 1")
    monkeypatch.setenv("CXX", str(broken))
    finding = machine.cxx_compiler()
    assert not finding.usable
    assert "cc1plus: not found" in finding.detail


def test_headers_that_do_not_compile_are_found_by_compiling(tmp_path: Path) -> None:
    good = find(base_python())
    assert machine.c_compiler(good).usable
    (tmp_path / "Python.h").write_text("#error not these\n")
    bad = type(good)(**{**vars(good), "include": str(tmp_path)})
    finding = machine.c_compiler(bad)
    assert not finding.usable
    assert "not these" in finding.detail


def test_too_little_space_is_told_in_numbers() -> None:
    finding = machine.disk(1 << 60)
    assert not finding.usable
    assert f"{1 << 30:.1f} GiB needed" in finding.detail
    with pytest.raises(PrerequisiteError, match="lacks disk"):
        machine.require([finding])


def fake_uv(directory: Path) -> Path:
    """A wheel of the installer whose program hands over to the real one."""
    script = f'#!/bin/sh\nexec "{tool.existing().path}" "$@"\n'.encode()
    return write_wheel(directory, "uv", tool.VERSION, {f"uv-{tool.VERSION}.data/scripts/uv": script})


def test_the_installer_comes_from_its_wheel_by_digest(bare: Tiny) -> None:
    wheel = fake_uv(bare.wheels)
    (bare.root / "eval/assay/setup/tools.lock").write_text(pin(wheel, "uv", tool.VERSION))
    done = bare.setup(PATH=without_uv(bare), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(bare.wheels))
    assert done.returncode == 0, done.stderr
    assert "from its wheel, by digest" in done.stderr
    assert (bare.root / f".assay/tools/uv-{tool.VERSION}/bin/uv").is_file()


def test_an_installer_of_another_digest_is_exit_5_and_is_not_kept(bare: Tiny) -> None:
    fake_uv(bare.wheels)
    done = bare.setup(PATH=without_uv(bare), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(bare.wheels))
    assert done.returncode == 5, done.stderr
    assert "uv" in done.stderr
    assert not (bare.root / f".assay/tools/uv-{tool.VERSION}").exists()


def test_a_uv_of_another_version_on_path_is_passed_over(bare: Tiny, tmp_path: Path) -> None:
    program(tmp_path / "old/uv", "echo 'uv 0.4.0'")
    path = f"{tmp_path / 'old'}{os.pathsep}{without_uv(bare)}"
    done = bare.setup(PATH=path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(bare.wheels))
    assert done.returncode == 3
    assert f"uv {tool.VERSION} (eval/assay/setup/tools.lock) could not be installed" in done.stderr


def without_uv(tiny: Tiny) -> str:
    """The PATH of its commands without any directory that holds a uv."""
    parts = tiny.environment()["PATH"].split(os.pathsep)
    return os.pathsep.join(part for part in parts if not (Path(part) / "uv").exists())
