"""Files that survive a crash: whole or old, never half; a torn tail is cut and said."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import RunError
from assay.files import (
    JsonlWriter,
    partial_files,
    read_json,
    read_jsonl,
    repair_tail,
    write_atomic,
    write_json_atomic,
)

FEW = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@FEW
@given(st.lists(VALUES, max_size=4), VALUES)
def test_a_log_cut_at_any_byte_loses_at_most_its_last_record_and_is_appended_to(
    tmp_path: Path, values: list[object], after: object
) -> None:
    path = tmp_path / "log.jsonl"
    path.unlink(missing_ok=True)
    with JsonlWriter(path) as writer:
        for value in values:
            writer.append(value)
    data = path.read_bytes()
    assert list(read_jsonl(path)) == values
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        assert list(read_jsonl(path)) == values[:whole]
        with JsonlWriter(path) as writer:
            assert writer.repaired_bytes == length - (data[:length].rfind(b"\n") + 1)
            writer.append(after, sync=length % 2 == 0)
        assert list(read_jsonl(path)) == [*values[:whole], after]


def test_a_line_end_inside_a_record_is_none_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonlWriter(path) as writer:
        writer.append("a\u0085b\u2028c\nd\r")
    assert list(read_jsonl(path)) == ["a\u0085b\u2028c\nd\r"]
    assert path.read_bytes().count(b"\n") == 1


def test_a_whole_log_and_one_that_is_not_there_need_no_repair(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert repair_tail(path) == 0
    assert not path.exists()
    path.write_bytes(b"1\n")
    assert repair_tail(path) == 0
    path.write_bytes(b"torn")
    assert repair_tail(path) == 4
    assert path.read_bytes() == b""


def test_a_value_that_is_no_json_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonlWriter(path) as writer:
        writer.append(1)
        with pytest.raises(ValueError, match="not JSON compliant"):
            writer.append(float("nan"))
    assert path.read_bytes() == b"1\n"
    writer.close()


def test_an_atomic_write_replaces_content_and_mode_and_leaves_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_json_atomic(path, {"é": [1]}, mode=0o600)
    write_json_atomic(path, {"é": [2]}, mode=0o640)
    assert read_json(path) == {"é": [2]}
    assert path.read_text("utf-8").endswith("]\n}\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1, 2}, b"x"])
def test_what_is_no_json_is_refused_and_the_old_content_stands(tmp_path: Path, bad: object) -> None:
    path = tmp_path / "state.json"
    write_json_atomic(path, 1)
    with pytest.raises((ValueError, TypeError)):
        write_json_atomic(path, bad)
    assert read_json(path) == 1
    assert list(tmp_path.iterdir()) == [path]


WRITER = """
import sys
from pathlib import Path
from assay.files import write_json_atomic
path = Path(sys.argv[1])
number = 0
while True:
    number += 1
    write_json_atomic(path, [number] * 20000)
    print(number, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for rounds in range(3):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(rounds + 2):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.stdout.close()
        child.wait()
        value = read_json(path)
        assert value == [value[0]] * 20000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"no tmpfs can be mounted here: {done.stderr}", pytrace=False)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_what_a_killed_write_left_is_found_by_its_name_and_nothing_else_is(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from assay.files import write_atomic\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomic(Path(sys.argv[1]), b'new')\n"
    )
    for folder in (tmp_path / "ours", tmp_path / "ours/deep", tmp_path / "theirs"):
        folder.mkdir()
        (folder / "state.json").write_bytes(b"old")
        (folder / ".hidden").touch()
        (folder / "model.partial").touch()
        done = subprocess.run([sys.executable, "-c", program, folder / "state.json"], check=False)
        assert done.returncode == -signal.SIGKILL
        assert (folder / "state.json").read_bytes() == b"old"
    found = partial_files(tmp_path, [tmp_path / "theirs"])
    assert [path.parent for path in found] == [tmp_path / "ours", tmp_path / "ours/deep"]
    assert all(path.name.startswith(".state.json.") for path in found)


def test_a_full_disk_is_named_and_the_old_content_stands(small_disk: Path) -> None:
    path = small_disk / "state.json"
    write_atomic(path, b"old")
    with pytest.raises(RunError, match="the disk is full") as caught:
        write_atomic(path, bytes(200_000))
    assert str(path) in caught.value.what
    assert "df -h" in caught.value.next
    assert path.read_bytes() == b"old"
    assert list(small_disk.iterdir()) == [path]


def test_a_record_that_does_not_fit_is_cut_off_again(small_disk: Path) -> None:
    path = small_disk / "log.jsonl"
    with JsonlWriter(path) as writer:
        writer.append("first")
        with pytest.raises(RunError, match="the disk is full"):
            writer.append("x" * 200_000)
    assert list(read_jsonl(path)) == ["first"]
    assert path.read_bytes().endswith(b"\n")


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "absent" / "file", b"")
    path = tmp_path / "file"
    with contextlib.suppress(ValueError):
        write_json_atomic(path, {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []
    path.write_text(json.dumps([1]))
    assert read_json(path) == [1]
