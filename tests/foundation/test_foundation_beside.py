"""What `beside` says of the tests is true of them: a name that nothing has would move nothing, silently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import beside


def test_every_group_of_minutes_is_a_room_or_a_file() -> None:
    rooms = {beside.ENGINE, *beside.ROOMS.values()}
    assert [
        name for name in beside.LONGEST if name not in rooms and not (beside.TESTS / name).is_file()
    ] == []


def test_every_room_and_file_of_a_group_is_there() -> None:
    assert [room for room in beside.ROOMS if not (beside.TESTS / room).is_dir()] == []
    assert [name for name in beside.FILES if not (beside.TESTS / name).is_file()] == []


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/run/test_run_demo.py::test_the_run_verifies", "docker"),
        ("tests/sandbox/test_sandbox_image.py::test_x[a::b/c]", "docker"),
        ("tests/nix/test_nix_lock.py::test_x", "nix"),
        ("tests/run/test_run_seeds.py::test_x[1]", "run/test_run_seeds.py"),
    ],
)
def test_a_test_is_of_the_group_of_its_file(nodeid: str, group: str) -> None:
    assert beside.group(nodeid) == group


def test_a_worker_takes_a_whole_group(tmp_path: Path) -> None:
    """By the real plug-ins, on two files: each must run in one process, in its order."""
    told = tmp_path / "told"
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(
            "import os, pytest\n"
            "@pytest.mark.parametrize('number', range(8))\n"
            f"def test_it(number):\n    print('{name}', number, os.getpid(), file=open({str(told)!r}, 'a'))\n"
        )
    (tmp_path / "conftest.py").write_text(
        "import beside\n"
        "def pytest_xdist_make_scheduler(config, log):\n    return beside.Scheduling(config, log)\n"
    )
    words = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadscope", "-p", "no:cacheprovider", "."]
    environment = {**os.environ, "PYTHONPATH": str(beside.TESTS)}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in told.read_text().splitlines()]
    for name in ("one", "two"):
        assert [int(number) for file, number, _ in rows if file == name] == list(range(8))
        assert len({pid for file, _, pid in rows if file == name}) == 1
    assert len({pid for _, _, pid in rows}) == 2
