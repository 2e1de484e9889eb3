"""Which key files are taken, and that a key shows nowhere."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from server.errors import StartError
from server.key import Key, read_key

SECRET = b"canary-0b9d6c"


def file(folder: Path, content: bytes = SECRET, mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def link(folder: Path) -> Path:
    path = folder / "link"
    path.symlink_to(file(folder))
    return path


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe", 0o600)
    return folder / "pipe"


def relative(folder: Path) -> Path:
    return Path(os.path.relpath(file(folder)))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_private_file_is_taken(tmp_path: Path, mode: int) -> None:
    key = read_key(file(tmp_path, mode=mode))
    assert key.matches(b"Bearer " + SECRET)
    assert key.matches(b"bearer " + SECRET)


@pytest.mark.parametrize(
    "given", [None, b"", b"Bearer", b"Bearer ", SECRET, b"Basic " + SECRET, b"Bearer x", b"\xff\xfe"]
)
def test_another_header_does_not_match(given: bytes | None) -> None:
    assert not Key(SECRET).matches(given)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda folder: folder / "absent", "no such file"),
        (relative, "not absolute"),
        (link, "symbolic link"),
        (pipe, "not a regular file"),
        (lambda folder: folder, "not a regular file"),
        (lambda folder: file(folder, mode=0o644), "0644"),
        (lambda folder: file(folder, mode=0o660), "0660"),
        (lambda folder: file(folder, mode=0o700), "0700"),
        (lambda folder: file(folder, b""), "empty"),
        (lambda folder: file(folder, SECRET + b"\n"), "newline"),
        (lambda folder: file(folder, b"a\nb"), "newline"),
        (lambda folder: file(folder, b"a\rb"), "newline"),
        (lambda folder: file(folder, b"a b"), "space"),
        (lambda folder: file(folder, b"a\x00b"), "not printable"),
        (lambda folder: file(folder, b"k" * 4097), "longer than 4096"),
    ],
)
def test_an_unsafe_file_is_refused_with_the_reason(
    tmp_path: Path, make: Callable[[Path], Path], why: str
) -> None:
    with pytest.raises(StartError) as caught:
        read_key(make(tmp_path))
    text = str(caught.value)
    assert why in text
    assert "next:" in text
    assert caught.value.exit_code == 2
    assert SECRET.decode() not in text + "".join(traceback.format_exception(caught.value))


def test_a_key_of_the_longest_length_is_taken(tmp_path: Path) -> None:
    assert read_key(file(tmp_path, b"k" * 4096)).matches(b"Bearer " + b"k" * 4096)


def test_a_key_does_not_show() -> None:
    key = Key(SECRET)
    assert SECRET.decode() not in f"{key!r} {key}"
