"""The report's chart library comes by digest or not at all, and is no package of any environment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tiny_checkout import CHARTS, Tiny, library_lock, write_wheel

FILES = ".assay/tools/tinychart-1.0"


@pytest.fixture
def gone(whole: Tiny) -> Tiny:
    """A checkout that was set up, without its chart library."""
    shutil.rmtree(whole.root / FILES)
    return whole


def there(tiny: Tiny) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tiny.root / FILES).iterdir()}


def test_a_set_up_brings_its_files_and_installs_nothing(whole: Tiny) -> None:
    assert there(whole) == {Path(name).name: data for name, data in CHARTS.items()}
    assert not list(whole.site.glob("tinychart*"))
    assert not list((whole.root / ".assay/tools").glob(".*.fetch"))


def test_what_is_here_is_not_fetched_again(whole: Tiny) -> None:
    for wheel in whole.wheels.glob("tinychart-*"):
        wheel.rename(wheel.with_suffix(".away"))
    try:
        done = whole.setup("--json")
    finally:
        for wheel in whole.wheels.glob("tinychart-*"):
            wheel.rename(wheel.with_suffix(".whl"))
    assert done.returncode == 0, done.stderr
    assert "tinychart 1.0: 2 files as pinned" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["library"]["licence"] == "MIT"


def test_an_edited_byte_is_exit_5_with_both_digests_and_is_never_replaced(whole: Tiny) -> None:
    file = whole.root / FILES / "chart.js"
    file.write_bytes(b"// lies\n")
    for words in ((), ("--check",)):
        done = whole.setup(*words)
        assert done.returncode == 5
        assert "is not the pinned tinychart 1.0" in done.stderr
        assert "library.lock says" in done.stderr
    assert file.read_bytes() == b"// lies\n"


def test_a_link_in_the_place_of_a_file_is_exit_5(whole: Tiny, tmp_path: Path) -> None:
    file = whole.root / FILES / "chart.js"
    file.rename(tmp_path / "chart.js")
    file.symlink_to(tmp_path / "chart.js")
    done = whole.setup("--check")
    assert done.returncode == 5
    assert "no regular file" in done.stderr


def test_check_fetches_nothing_and_names_what_does(gone: Tiny) -> None:
    done = gone.setup("--check")
    assert done.returncode == 3
    assert "next: eval/scripts/setup assay" in done.stderr
    assert not (gone.root / FILES).exists()


def test_another_wheel_under_the_pinned_name_is_exit_5_and_leaves_nothing(gone: Tiny) -> None:
    members = {**CHARTS, "tinychart/chart.js": b"// other\n"}
    wheel = next(gone.wheels.glob("tinychart-*"))
    before = wheel.read_bytes()
    write_wheel(gone.wheels, "tinychart", "1.0", members)
    try:
        done = gone.setup()
    finally:
        wheel.write_bytes(before)
    assert done.returncode == 5
    assert there(gone) == {}


def test_a_member_that_is_not_the_pinned_one_is_exit_5_and_leaves_nothing(gone: Tiny, tmp_path: Path) -> None:
    lock = gone.root / "eval/assay/report/library.lock"
    other = write_wheel(tmp_path, "tinychart", "1.0", {**CHARTS, "tinychart/chart.js": b"// other\n"})
    shutil.copy(other, gone.wheels)
    lock.write_text(library_lock(other))
    done = gone.setup()
    shutil.copy(write_wheel(tmp_path, "tinychart", "1.0", CHARTS), gone.wheels)
    assert done.returncode == 5
    assert "is not the pinned tinychart 1.0" in done.stderr
    assert there(gone) == {}
