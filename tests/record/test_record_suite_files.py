"""A suite's results on the disk: computed again from the rows, and whole whatever ends the writing."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from suite_rows import PRIMARY, job_of, row, suite

from assay.errors import RunError, VerificationError
from assay.files import write_json_atomic
from assay.record.dataset_result import Effort, JobRecord
from assay.record.sample import Baseline, Sample
from assay.record.suite_render import markdown, show
from assay.record.suite_results import (
    load_suite_summary,
    recompute,
    recorded,
    summarise_suite,
    write_results,
)
from bench.launched import launched


def prepared(run: Path, **changed: str) -> tuple[Path, list[JobRecord]]:
    """A run of two jobs that are about to be recorded."""
    run.mkdir(parents=True)
    asked = suite("first", "second", **changed)
    write_json_atomic(run / "resolved.json", asked.model_dump(mode="json"))
    first = [row(n, reward=n % 2, thinking=n == 1) for n in range(4)] + [row(4, "errored")]
    second = [row(n, entry="second", rollout=k, family=f"f{n % 2}") for n in range(3) for k in range(2)]
    return run, [
        JobRecord(job_of(asked, "first"), 5, first, primary=PRIMARY, effort=Effort(seconds=1.5, attempts=2)),
        JobRecord(
            job_of(asked, "second"),
            None,
            second,
            sampling={"temperature": 0.6},
            baselines={"f0": Baseline(answer="B", score=0.1)},
            reported={"acc": 1.0},
            notes=("the child ended with exit code 1",),
        ),
    ]


def test_what_was_written_is_computed_again_from_the_rows(tmp_path: Path) -> None:
    run, jobs = prepared(tmp_path / "run")
    asked = suite("first", "second")
    summary = write_results(run, asked, jobs, notes=["slow"], servers={"nobody": "assay-1"}, seconds=3.0)
    assert load_suite_summary(run) == summary
    assert recompute(run) == summary
    assert json.loads((run / "summary.json").read_text()) == summary.model_dump(mode="json")
    assert (run / "summary.md").read_text() == markdown(summary)
    lines = (run / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["entry"] for line in lines] == ["first"] * 5 + ["second"] * 6
    kept = recorded(run)
    assert list(kept["second"].rows) == list(jobs[1].rows)
    again = write_results(run, asked, list(kept.values()), ["a key"], servers={"nobody": "assay-1"})
    assert again.jobs == summary.jobs
    assert again.status == "failed"
    assert (run / "samples.jsonl").read_text().splitlines() == lines


def test_a_row_that_was_changed_afterwards_gives_another_summary(tmp_path: Path) -> None:
    run, jobs = prepared(tmp_path / "run")
    summary = write_results(run, suite("first", "second"), jobs)
    path = run / "samples.jsonl"
    path.write_text(path.read_text().replace('"status":"errored"', '"status":"missing"', 1))
    assert recompute(run).jobs[0].counts != summary.jobs[0].counts
    path.write_text(path.read_text().replace('"status":"missing"', '"status":"lost"', 1))
    found = recompute(run).jobs[0]
    assert found.status == "failed"
    assert "samples.jsonl line 5 is no row" in found.problems[0]


def test_before_anything_was_recorded_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert recorded(tmp_path) == {}
    with pytest.raises(VerificationError, match=r"has no summary\.json"):
        load_suite_summary(tmp_path)
    (tmp_path / "summary.json").write_text('{"schema_version": "assay/suite-summary/v0"}')
    with pytest.raises(VerificationError, match="is of the form assay/suite-summary/v0"):
        load_suite_summary(tmp_path)


def test_what_no_file_can_hold_is_replaced_and_ends_no_recording(tmp_path: Path) -> None:
    run, jobs = prepared(tmp_path / "run")
    rows = [row(0), row(9, "errored", error="bad \udfff \ud83d\ude00", task_key="9\ud800")]
    strange = replace(
        jobs[0],
        planned=2,
        rows=rows,
        notes=("said \ud800",),
        reported={"acc": math.nan, "f1": math.inf, "em": 0.5},
    )
    summary = write_results(run, suite("first", "second"), [strange, jobs[1]])
    found = summary.jobs[0]
    assert found.failures[0].error == "bad \ufffd \U0001f600"
    assert (found.notes, found.reported) == (("said \ufffd",), {"em": 0.5})
    assert recompute(run) == summary == load_suite_summary(run)
    assert [one.task_key for one in recorded(run)["first"].rows] == ["0", "9\ufffd"]


def test_findings_are_the_same_however_long_they_took(tmp_path: Path) -> None:
    run, jobs = prepared(tmp_path / "run")
    asked = suite("first", "second")
    one = write_results(run, asked, jobs, seconds=3.0)
    other = [
        replace(job, artefacts=("first/attempt-2",), effort=Effort(seconds=9.0, replayed=3)) for job in jobs
    ]
    two = summarise_suite(asked, other, seconds=12.0)
    assert one != two
    assert one.findings() == two.findings()
    changed = summarise_suite(asked, other, notes=["something else"])
    assert changed.findings() != two.findings()


class Killed(BaseException):
    """Ends whatever is going on."""


def test_what_ends_the_writing_leaves_what_had_been_recorded(tmp_path: Path) -> None:
    run, jobs = prepared(tmp_path / "run")
    asked = suite("first", "second")
    write_results(run, asked, jobs)
    before = {path.name: path.read_bytes() for path in run.iterdir()}

    def ended() -> Iterator[Sample]:
        yield row(0)
        raise Killed

    with pytest.raises(Killed):
        write_results(run, asked, [replace(jobs[0], rows=ended()), jobs[1]])
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_full_disk_is_said_and_leaves_what_had_been_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, jobs = prepared(tmp_path / "run")
    asked = suite("first", "second")
    write_results(run, asked, jobs)
    before = {path.name: path.read_bytes() for path in run.iterdir()}

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"the disk is full: .*samples\.jsonl"):
        write_results(run, asked, [jobs[0]])
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.slow
def test_six_times_as_many_rows_need_no_more_memory(tmp_path: Path) -> None:
    few, many = (peak_mib(rows, tmp_path) for rows in (10_000, 60_000))
    assert many < few + 16


def peak_mib(rows: int, folder: Path) -> int:
    """The most memory that a process held which recorded so many rows."""
    side = Path(__file__).parent / "peak_side.py"
    with (folder / "said").open("wb") as said:
        taken = launched([sys.executable, str(side), str(rows)], said)
    assert taken.code == 0, (folder / "said").read_text("utf-8")
    return taken.peak_bytes >> 20


def test_what_is_shown_has_no_control_codes_and_no_markup(tmp_path: Path) -> None:
    rows = [row(0, family="f | <b>", error=None)]
    record = JobRecord(job_of(suite()), 1, rows, primary="<i>|", notes=("\x1b[2J [c](http://d)\n# h",))
    summary = summarise_suite(suite(), [record])
    captured = io.StringIO()
    with redirect_stdout(captured):
        show(summary, stderr=False)
    assert "\x1b" not in captured.getvalue()
    assert "\x1b" not in markdown(summary)
    assert "\\[c](http://d)" in markdown(summary)
    (line,) = [line for line in markdown(summary).splitlines() if line.startswith("| first ")]
    assert line.replace("\\|", "").count("|") == 15
    table = captured.getvalue().partition("job ")[2].partition("score: sum")[0]
    assert max(map(len, table.splitlines())) <= 80
