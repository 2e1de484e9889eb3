"""Where a command may write what the user names: over a file of its own kind, and never into a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import ConfigurationError
from assay.paths import output_file


def loop(path: Path) -> None:
    """A link to itself."""
    path.symlink_to(path.name)


def target(path: Path) -> None:
    """A link to another file."""
    (path.parent / "target").write_text("kept")
    path.symlink_to("target")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is not a regular file"),
        (os.mkfifo, "is not a regular file"),
        (loop, "is not a regular file"),
        (target, "is not a regular file"),
        (lambda path: path.write_text("-----BEGIN PRIVATE KEY-----\n"), "a key is never overwritten"),
        (lambda path: path.write_text("-----BEGIN PUBLIC KEY-----\n"), "a key is never overwritten"),
    ],
    ids=["directory", "pipe", "loop", "link", "private key", "public key"],
)
def test_nothing_but_a_file_is_replaced(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    path = tmp_path / "out"
    make(path)
    with pytest.raises(ConfigurationError, match=said):
        output_file(path, ())


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        output_file(Path("/dev/null"), ())


def test_a_run_is_written_into_under_one_name_at_most(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "below").mkdir(parents=True)
    (tmp_path / "way").symlink_to("run")
    for path in (
        run / "x",
        run / "below" / "report.html",
        tmp_path / "way" / "x",
        tmp_path / "a" / ".." / "run" / "x",
    ):
        with pytest.raises(ConfigurationError, match="lies inside the run"):
            output_file(path, (tmp_path / "other", run), "report.html")
    with pytest.raises(ConfigurationError, match="lies inside the run"):
        output_file(run / "report.html", (run,))
    assert output_file(tmp_path / "way" / "report.html", (run,), "report.html") == run / "report.html"


def test_a_place_is_told_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a directory"):
        output_file(tmp_path / "gone" / "out", ())
    (tmp_path / "old").write_text("replaced")
    assert output_file(tmp_path / "old", ()) == tmp_path / "old"
    assert output_file(tmp_path / "new", ()) == tmp_path / "new"
