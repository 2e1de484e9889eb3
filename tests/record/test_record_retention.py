"""Retention acts on what became of rows, when all of them have been counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from suite_rows import PRIMARY, job_of, row, suite

from assay.files import write_json_atomic
from assay.record import retention
from assay.record.dataset_result import DatasetResult, JobRecord
from assay.record.sample import Sample
from assay.record.suite_render import headlines
from assay.record.suite_results import recompute, recorded, write_results

NATIVE = "first/attempt-1/records.jsonl"


def native(run: Path, rows: list[Sample]) -> None:
    """Records as an evaluator leaves them: a line a row that says "error" each time, and files beside."""
    path = run / NATIVE
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps({"row": one.task_key, "error": one.error}) + "\n" for one in rows))
    (path.parent / "logs").mkdir()
    (path.parent / "logs/eval.log").write_text("error: none\n")
    (path.parent / "logs/latest").symlink_to("eval.log")
    (run / "answers").mkdir()
    (run / "answers/first.jsonl").write_text('{"answer": 1}\n')
    (run / "second").mkdir()
    (run / "second/records.jsonl").write_text("{}\n")


def ran(run: Path, policy: str, rows: list[Sample], **facts: Any) -> DatasetResult:
    """Record a job with those rows under that policy."""
    asked = suite(retention=policy)
    if not run.exists():
        run.mkdir()
        write_json_atomic(run / "resolved.json", asked.model_dump(mode="json"))
        native(run, rows)
    record = JobRecord(job_of(asked), len(rows), rows, PRIMARY, **facts)
    (found,) = write_results(run, asked, [record]).jobs
    assert recompute(run).jobs == (found,)
    return found


def files(run: Path) -> set[str]:
    """Every file below the jobs' and the answers' folders."""
    below = [path for name in ("first", "answers", "second") for path in (run / name).rglob("*")]
    return {path.relative_to(run).as_posix() for path in below if path.is_symlink() or path.is_file()}


FINE = [row(0), row(1, reward=0.0), row(2)]
MIXED = [
    row(0),
    row(1, "errored"),
    row(2, reward=0.0),
    row(3, "truncated", 1.0),
    row(4, reward=0.0, empty=True),
    row(5, reward=0.0, unparsed=True),
    row(6, reward=0.0, unparsed=False),
]
EVERYTHING = {NATIVE, "first/attempt-1/logs/eval.log", "first/attempt-1/logs/latest", "answers/first.jsonl"}
OTHERS = {"second/records.jsonl"}


def test_all_keeps_all(tmp_path: Path) -> None:
    found = ran(tmp_path / "run", "all", MIXED)
    assert files(tmp_path / "run") == EVERYTHING | OTHERS
    assert (found.retained.acted, found.retained.rows) == (False, 4)


def test_errors_keeps_the_records_of_rows_that_did_not_go_well_and_no_others(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = ran(run, "errors", MIXED)
    assert found.status == "partial"
    assert files(run) == {"first/retained.jsonl", "answers/first.jsonl"} | OTHERS
    kept = [json.loads(line) for line in (run / "first/retained.jsonl").read_text().splitlines()]
    assert [(line["record"], line["line"]) for line in kept] == [
        (NATIVE, 2),
        (NATIVE, 4),
        (NATIVE, 5),
        (NATIVE, 6),
    ]
    assert [json.loads(line["text"])["row"] for line in kept] == ["1", "3", "4", "5"]
    assert found.retained.model_dump() == {
        "policy": "errors",
        "acted": True,
        "rows": 4,
        "kept_rows": 4,
        "removed_files": 3,
        "removed_bytes": found.retained.removed_bytes,
    }
    assert found.retained.removed_bytes > 100
    assert found.counts.planned == 7, "it was counted before"


def test_errors_keeps_nothing_where_every_row_went_well(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = ran(run, "errors", FINE)
    assert (found.status, found.retained.rows, found.retained.kept_rows) == ("done", 0, 0)
    assert files(run) == {"first/retained.jsonl"} | OTHERS
    assert (run / "first/retained.jsonl").read_bytes() == b""


def test_a_file_that_is_the_record_of_one_row_is_kept_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    rows = [
        row(0, record="first/attempt-1/logs/eval.log", line=None),
        row(1, "errored", record=NATIVE, line=None),
    ]
    found = ran(run, "errors", rows)
    assert files(run) == {NATIVE, "first/retained.jsonl", "answers/first.jsonl"} | OTHERS
    assert found.retained.kept_rows == 1


def test_none_removes_all_of_it_after_it_was_counted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = ran(run, "none", FINE)
    assert files(run) == OTHERS
    assert not (run / "first").exists()
    assert (found.counts.completed, found.score) == (3, round(2 / 3, 6))
    assert len((run / "samples.jsonl").read_text().splitlines()) == 3
    assert (found.retained.acted, found.retained.removed_files) == (True, 4)
    (line,) = [line for line in headlines(recompute(run)) if "retention" in line]
    assert line == "first: retention none: 4 file(s) of its records removed, 0 row(s) kept"


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([row(0), row(1, "missing")], {}),
        ([row(0), row(1)], {"cancelled": True}),
        ([row(0), row(1)], {"problems": ("a frozen input changed",)}),
    ],
    ids=["rows are missing", "it was cancelled", "it failed"],
)
def test_what_a_resume_or_a_search_for_the_fault_reads_stays(
    tmp_path: Path, rows: list[Sample], facts: dict[str, Any]
) -> None:
    for policy in ("errors", "none"):
        run = tmp_path / policy
        found = ran(run, policy, rows, **facts)
        assert not found.retained.acted
        assert files(run) == EVERYTHING | OTHERS


def test_what_was_removed_is_still_told_when_the_run_is_recorded_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for policy in ("errors", "none"):
        run = tmp_path / policy
        found = ran(run, policy, MIXED if policy == "errors" else FINE)
        before = files(run)
        asked = suite(retention=policy)
        (again,) = write_results(run, asked, list(recorded(run).values())).jobs
        assert again == found
        assert files(run) == before


@pytest.mark.parametrize("policy", ["errors", "none"])
def test_a_run_that_died_while_it_removed_goes_on_and_loses_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    run = tmp_path / "run"
    rows = MIXED if policy == "errors" else FINE

    class Killed(BaseException):
        """The moment of death."""

    def die(folder: Path) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(retention, "_prune", die)
        with pytest.raises(Killed):
            ran(run, policy, rows)
    assert not recorded(run)["first"].retained
    (found,) = write_results(run, suite(retention=policy), list(recorded(run).values())).jobs
    assert found.counts.planned == len(rows)
    assert (found.retained.acted, found.retained.kept_rows) == (True, 4 if policy == "errors" else 0)
    assert not (run / NATIVE).exists()
    assert list(recorded(run)["first"].rows) == rows
