"""`assay report` over real runs of the toy: where the file goes, what it leaves alone, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.report.library import pinned
from toy_checkout import Toy


@pytest.fixture(scope="module")
def charted(toy: Toy) -> Toy:
    """The toy checkout with the chart library, which its set-up does not fetch."""
    shutil.copytree(
        pinned().directory, toy.root / ".assay/tools" / pinned().directory.name, dirs_exist_ok=True
    )
    return toy


@pytest.fixture(scope="module")
def finished(charted: Toy) -> Path:
    """A finished run of the toy."""
    done = charted.run("run", "toy", "--runtime", "subprocess")
    assert done.code == 0, done.err
    return done.run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / finished.name, symlinks=True))


def test_it_lies_in_the_run_which_is_audited_as_before(charted: Toy, run: Path) -> None:
    before = charted.run("audit", run)
    done = charted.run("report", run, "--json")
    assert done.code == 0, done.err
    assert Path(done.json["path"]) == run / "report.html"
    assert done.json["samples"] == 6
    assert done.json["size_bytes"] == (run / "report.html").stat().st_size
    after = charted.run("audit", run)
    assert before.code == after.code == 0
    assert "report.html" not in after.out


def test_it_shows_what_the_run_recorded(charted: Toy, run: Path) -> None:
    assert charted.run("report", run).code == 0
    text = (run / "report.html").read_text("utf-8")
    for said in (
        "two families of three questions: a toy",
        ">letter</span>",
        ">digit</span>",
        "toy-model",
        run.name,
    ):
        assert said in text


def test_two_runs_make_one_report_in_the_second(charted: Toy, run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    done = charted.run("report", run, other, "--json")
    assert done.code == 0, done.err
    assert Path(done.json["path"]) == other / "report.html"
    assert done.json["verdict"] == "no difference shown"
    assert not (run / "report.html").exists()


def test_output_goes_anywhere_but_under_another_name_into_a_run(
    charted: Toy, run: Path, tmp_path: Path
) -> None:
    done = charted.run("report", run, "--output", tmp_path / "mine.html")
    assert done.code == 0, done.err
    assert (tmp_path / "mine.html").is_file()
    refused = charted.run("report", run, "--output", run / "mine.html")
    assert refused.code == 2
    assert "lies inside the run" in refused.err
    assert charted.run("report", run, "--output", run / "report.html").code == 0
    assert charted.run("report", run, "--output", tmp_path / "gone" / "mine.html").code == 2


def test_what_is_no_finished_run_is_refused(charted: Toy, run: Path, tmp_path: Path) -> None:
    assert charted.run("report", tmp_path).code == 5
    (run / "summary.json").unlink()
    assert charted.run("report", run).code == 5
    assert not (run / "report.html").exists()


def test_allow_is_for_two_runs(charted: Toy, run: Path) -> None:
    assert charted.run("report", run, "--allow", "data.*").code == 2


def test_without_its_chart_library_it_names_what_fetches_it(charted: Toy, run: Path) -> None:
    library = charted.root / ".assay/tools" / pinned().directory.name
    library.rename(library.with_suffix(".away"))
    try:
        done = charted.run("report", run)
    finally:
        library.with_suffix(".away").rename(library)
    assert done.code == 3
    assert "next: eval/scripts/setup assay" in done.err
    assert not (run / "report.html").exists()
