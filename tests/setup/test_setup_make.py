"""Making an environment: it ends whole or is redone, whatever happens in the middle."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from assay.setup import tool
from tiny_checkout import Tiny, pin, write_wheel


def wait_until(path: Path, seconds: float = 60) -> str:
    """The file's text once it is there and not empty."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.is_file() and path.stat().st_size:
            return path.read_text()
        time.sleep(0.02)
    pytest.fail(f"{path} did not appear")


def slow_uv(directory: Path, flag: Path) -> str:
    """A PATH on which uv stops, half-way through the packages, and writes its process id to `flag`."""
    directory.mkdir()
    real = tool.existing().path
    script = directory / "uv"
    script.write_text(
        f"#!/bin/bash\n"
        f'"{real}" "$@" || exit\n'
        f'case "$*" in *requirements.lock*) echo $$ > "{flag}"; exec sleep 300;; esac\n'
    )
    script.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def test_a_repeat_run_finds_it_whole_and_does_nothing(whole: Tiny) -> None:
    before = whole.stamp.stat().st_mtime_ns
    done = whole.setup()
    assert done.returncode == 0
    assert "looking at the machine" not in done.stderr
    assert whole.stamp.stat().st_mtime_ns == before


def test_each_step_says_its_seconds_and_nothing_is_written_outside(bare: Tiny) -> None:
    done = bare.setup()
    assert done.returncode == 0, done.stderr
    for what in ("build.lock", "requirements.lock", "editable", "consistent?", "sealing"):
        assert any(what in line and line.endswith(" s") for line in done.stderr.splitlines()), what
    assert list(bare.home.iterdir()) == []
    assert subprocess.run([bare.root / ".venv/bin/assay", "--version"], check=False).returncode == 0


def test_killed_in_the_middle_it_is_redone_and_the_next_one_waits_for_what_still_runs(
    bare: Tiny, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    environment = bare.environment() | {"PATH": slow_uv(tmp_path / "slow", flag)}
    first = subprocess.Popen(
        [bare.root / "eval/scripts/setup", "assay"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    installer = int(wait_until(flag))
    first.kill()
    first.wait()
    assert not bare.stamp.exists()
    assert bare.setup("--check").returncode == 3
    log = tmp_path / "log"
    with log.open("wb") as output:
        second = subprocess.Popen(
            [bare.root / "eval/scripts/setup", "assay"],
            env=bare.environment(),
            stdin=subprocess.DEVNULL,
            stderr=output,
        )
        while "waiting for another set-up" not in wait_until(log):
            time.sleep(0.02)
        assert second.poll() is None
        os.kill(installer, signal.SIGKILL)
        assert second.wait(60) == 0
    assert "a set-up was interrupted" in log.read_text()
    assert bare.setup("--check").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_its_children_and_exit_6(bare: Tiny, tmp_path: Path, number: int) -> None:
    flag = tmp_path / "flag"
    child = subprocess.Popen(
        [bare.root / "eval/scripts/setup", "assay"],
        env=bare.environment() | {"PATH": slow_uv(tmp_path / "slow", flag)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # A shell that starts the tests in the background has told them to ignore it.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    installer = int(wait_until(flag))
    child.send_signal(number)
    assert child.wait(60) == 6
    assert not bare.stamp.exists()
    assert not Path(f"/proc/{installer}").exists()


def test_a_half_copied_package_is_not_taken_for_installed(whole: Tiny) -> None:
    whole.stamp.unlink()
    (whole.site / "tinypure/__init__.py").unlink()
    assert whole.setup().returncode == 0
    assert (whole.site / "tinypure/__init__.py").read_bytes() == b"value = 1\n"
    assert whole.setup("--check").returncode == 0


def test_rebuild_repairs_an_edited_byte(whole: Tiny) -> None:
    (whole.site / "tinypure/__init__.py").write_bytes(b"value = 3\n")
    assert whole.setup("--rebuild").returncode == 0
    assert (whole.site / "tinypure/__init__.py").read_bytes() == b"value = 1\n"


def test_an_edited_byte_does_not_reach_the_cache(whole: Tiny) -> None:
    with (whole.site / "tinypure/__init__.py").open("r+b") as file:
        file.write(b"x")
    cached = list((whole.root / ".assay/cache/uv").rglob("tinypure/__init__.py"))
    assert [path.read_bytes() for path in cached] == [b"value = 1\n"]


def test_a_changed_lock_is_followed_in_place(whole: Tiny) -> None:
    wheel = write_wheel(whole.wheels, "tinypure", "1.1", {"tinypure/__init__.py": b"value = 11\n"})
    lock = whole.root / "requirements.lock"
    lock.write_text((whole.root / "build.lock").read_text() + pin(wheel, "tinypure", "1.1"))
    done = whole.setup()
    assert done.returncode == 0, done.stderr
    assert "is brought up to date: requirements.lock changed" in done.stderr
    assert (whole.site / "tinypure/__init__.py").read_bytes() == b"value = 11\n"
    assert whole.setup("--check").returncode == 0


def test_a_package_that_is_not_the_locked_one_is_exit_5(bare: Tiny) -> None:
    lock = bare.root / "requirements.lock"
    wheel = bare.wheels / "tinypure-1.0-py3-none-any.whl"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(lock.read_text().replace(digest, "0" * 64))
    done = bare.setup()
    assert done.returncode == 5, done.stderr
    assert digest in done.stderr
    assert "0" * 64 in done.stderr
    assert not bare.stamp.exists()


def test_an_index_that_does_not_answer_is_exit_3_with_the_command_to_repeat(bare: Tiny) -> None:
    shutil.rmtree(bare.wheels)
    bare.wheels.mkdir()
    done = bare.setup()
    assert done.returncode == 3
    assert "tinybuild" in done.stderr
    assert "next: eval/scripts/setup assay" in done.stderr
    assert not bare.stamp.exists()


@pytest.mark.parametrize("name", [".venv", ".assay"])
def test_a_link_where_a_directory_belongs_is_refused_and_not_followed(
    bare: Tiny, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (bare.root / name).symlink_to(target)
    done = bare.setup()
    assert done.returncode == 2
    assert f"{name} is a symbolic link where a directory belongs" in done.stderr
    assert list(target.iterdir()) == []


def test_a_link_where_the_lock_belongs_is_refused_and_not_followed(bare: Tiny, tmp_path: Path) -> None:
    (bare.root / ".assay").mkdir()
    (bare.root / ".assay/setup.lock").symlink_to(tmp_path / "elsewhere")
    done = bare.setup()
    assert (done.returncode, "mv .assay/setup.lock .assay/setup.lock.saved" in done.stderr) == (2, True)
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_inside_an_unfinished_environment_is_removed_and_not_followed(
    whole: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "kept").write_text("mine")
    whole.stamp.unlink()
    (whole.root / ".venv/include").symlink_to(tmp_path)
    assert whole.setup().returncode == 0
    assert (tmp_path / "kept").read_text() == "mine"
    assert not (whole.root / ".venv/include").exists()


def test_an_environment_that_was_moved_is_made_again(whole: Tiny, tmp_path: Path) -> None:
    moved = Tiny(tmp_path / "moved", whole.home, whole.wheels)
    shutil.copytree(whole.root, moved.root, symlinks=True)
    done = moved.setup()
    assert done.returncode == 0, done.stderr
    assert f"it was made at {whole.root}" in done.stderr
    assert str(moved.root) in (moved.root / ".venv/bin/assay").read_text()
