"""Files that are no suites: each is refused by what it is, at once, and nothing hangs or raises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from written import refusal, write

from assay.suite.document import MAXIMUM_BYTES
from assay.suite.read import read_suite


def spoilt(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "try.toml"
    path.write_bytes(data)
    return refusal(path)


BYTES = {
    "nothing": (b"", "description: say in one sentence"),
    "no TOML": (b"description: a suite\n", "it is not valid TOML"),
    "a key twice": (b'description = "a"\ndescription = "b"\n', "it is not valid TOML"),
    "Latin-1": ('description = "gr\xfc\xdfe"\n'.encode("latin-1"), "it is not UTF-8"),
    "UTF-16": ('description = "x"\n'.encode("utf-16"), "it is not UTF-8"),
    "a NUL": (b'description = "a\0b"\n', "it is not valid TOML"),
    "an escaped NUL": (b'description = "a\\u0000b"\n', "description: it holds a NUL"),
    "half a character": (b'description = "a\\ud800b"\n', "it is not valid TOML"),
    "a bare line end of old Macs": (b'description = "x"\rrunning = 3\r', "it is not valid TOML"),
    "a number without end": (b"description = " + b"1" * 5000, "a number that is too long"),
    "brackets without end": (b"x = " + b"[" * 5000 + b"]" * 5000, "too many brackets in each other"),
    "tables without end": (b"a" + b".a" * 100 + b" = 1\n", "a: more than 32 tables in each other"),
    "a key that cannot be seen": (b'"a\\u200bb" = 1\n', "the key 'a\\u200bb' is not of printable ASCII"),
    "a key like another": (
        '"\u0430pi_key" = 1\n'.encode(),
        "the key '\\u0430pi_key' is not of printable ASCII",
    ),
    "a key without a letter": (b'"" = 1\n', "the key '' is not of printable ASCII"),
    "a time": (b"x = 07:32:00\n", "x: a time is neither text nor number"),
    "one byte too many": (b"#" * (MAXIMUM_BYTES + 1), "it is longer than 1,048,576 bytes"),
}


@pytest.mark.parametrize("kind", BYTES)
def test_bytes_that_are_no_suite_are_told_by_what_they_are(tmp_path: Path, kind: str) -> None:
    data, said = BYTES[kind]
    assert said in spoilt(tmp_path, data)


def test_a_file_that_is_none_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    assert "it is a directory" in refusal(folder)
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    assert "it is not a regular file" in refusal(pipe)
    endless = tmp_path / "endless.toml"
    endless.symlink_to("/dev/zero")
    assert "it is not a regular file" in refusal(endless)
    assert "No such file" in refusal(tmp_path / "absent.toml")
    assert "null" in refusal("a\0b.toml")
    assert "File name too long" in refusal("a" * 4000 + ".toml")
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    assert "Too many levels" in refusal(loop)


def test_a_link_to_a_suite_is_that_suite(tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(write(tmp_path))
    assert read_suite(str(link), {}).suite.name == "link"


def test_the_lines_and_the_mark_of_another_system_change_nothing(tmp_path: Path) -> None:
    path = write(tmp_path)
    plain = read_suite(str(path), {}).suite
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_suite(str(path), {}).suite == plain


def test_json_that_is_no_resolved_suite_is_told_by_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "resolved.json"
    for data, said in (
        (b"[]", "it is no table"),
        (b"{", "it is not valid JSON"),
        (b'{"name": NaN}', "name: nan is no number"),
        (b'{"name": "\\ud800"}', "name: it holds a NUL, or half a character"),
        (b'{"name": ' + b"[" * 100_000, "too many brackets"),
        (b"{}", "description is missing"),
    ):
        path.write_bytes(data)
        assert said in refusal(path)
