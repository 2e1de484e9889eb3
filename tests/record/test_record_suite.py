"""A suite's results: what became of every planned rollout, whatever happened to the job."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_rows import PRIMARY, job_of, row, suite

from assay.errors import RunError, VerificationError
from assay.files import write_json_atomic
from assay.record.dataset_result import DatasetResult, Effort, JobRecord
from assay.record.sample import STATUSES, Baseline, Sample, Status
from assay.record.scores import score_family
from assay.record.suite_render import headlines, markdown, show
from assay.record.suite_results import (
    load_suite_summary,
    recompute,
    recorded,
    summarise_suite,
    write_results,
)
from assay.record.suite_summary import SuiteSummary

FEW = settings(max_examples=40, deadline=None)


def result(rows: list[Sample], planned: int | None = None, **facts: object) -> DatasetResult:
    """The result of one job with those rows."""
    asked = suite()
    record = JobRecord(job_of(asked), planned, rows, primary=PRIMARY, **facts)  # pyright: ignore
    (found,) = summarise_suite(asked, [record]).jobs
    return found


FATES = st.lists(
    st.tuples(
        st.sampled_from(STATUSES),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.booleans(),
        st.sampled_from([None, True, False]),
        st.sampled_from([None, True, False]),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=20,
)


def made(fates: list[tuple[Status, float, bool, bool | None, bool | None, int]]) -> list[Sample]:
    return [
        row(
            number,
            status,
            reward,
            empty=empty,
            thinking=thinking,
            unparsed=unparsed,
            cluster=f"question {asks}",
        )
        for number, (status, reward, empty, thinking, unparsed, asks) in enumerate(fates)
    ]


@FEW
@given(FATES, st.integers(1, 3))
def test_a_suite_and_a_profile_agree_on_every_figure_of_the_same_rows(
    fates: list[tuple[Status, float, bool, bool | None, bool | None, int]], times: int
) -> None:
    rows = [again.model_copy(update={"rollout": n}) for again in made(fates) for n in range(times)]
    baseline = Baseline(answer="A", score=0.25)
    job = result(rows, baselines={"set": baseline})
    family = score_family(rows, baseline, sampled=True)
    assert job.families == (family.model_copy(update={"entry": "first"}),)
    assert (job.counts.planned, job.counts.completed) == (family.counts.planned, family.counts.answered)
    assert (job.counts.failed, job.counts.scored) == (family.counts.errored, family.counts.scored)
    for name in ("truncated", "missing", "empty", "thought_only", "unparsed", "duplicates"):
        assert getattr(job.counts, name) == getattr(family.counts, name)
    assert job.rates.truncated == family.truncated_rate
    assert job.tokens.mean_completion == family.mean_completion_tokens
    if not job.counts.completed:
        assert (job.score, job.low, job.high, job.interval_method) == (None, None, None, "none")
        return
    assert job.metrics == family.rewards
    for name in (
        "score",
        "score_ceiling",
        "low",
        "high",
        "interval_method",
        "clustered",
        "wilson",
        "repeats",
    ):
        assert getattr(job, name) == getattr(family, name), name
    assert (job.clusters, job.distinct_answers) == (family.clusters, family.distinct_answers)


@FEW
@given(FATES)
def test_counts_add_up_and_no_zero_is_told_twice(
    fates: list[tuple[Status, float, bool, bool | None, bool | None, int]],
) -> None:
    rows = made(fates)
    found = result(rows)
    counts = found.counts
    assert counts.planned == counts.completed + counts.failed + counts.missing == len(rows)
    assert counts.completed == counts.scored + counts.truncated
    zeros = sum(one.reward == 0.0 for one in rows)
    assert sum(found.zeros.model_dump().values()) == zeros
    answers = [one for one in rows if one.reward is not None]
    assert counts.thought_only == sum(one.empty and one.thinking is True for one in answers)
    assert (counts.unparsed is None) == all(one.unparsed is None for one in answers)


def test_a_failed_row_never_leaves_the_denominator() -> None:
    rows = [row(n) for n in range(80)] + [row(n, "errored") for n in range(80, 100)]
    found = result(rows, planned=100)
    assert (found.status, found.score, found.score_ceiling) == ("partial", 0.8, 1.0)
    assert (found.counts.completed, found.counts.failed, found.rates.failed) == (80, 20, 0.2)
    assert [(failure.error, failure.rows) for failure in found.failures] == [("Timeout: too slow", 20)]


def test_silence_after_thinking_and_a_cut_are_told_apart_from_wrong_answers() -> None:
    rows = [
        row(0, reward=1.0, thinking=True),
        row(1, reward=0.0, thinking=True, empty=True),
        row(2, "truncated", 0.0, thinking=True, empty=True),
        row(3, reward=0.0, empty=True),
        row(4, reward=0.0, unparsed=True),
        row(5, reward=0.0, unparsed=False),
        row(6, "truncated", 1.0),
    ]
    found = result(rows)
    assert found.status == "done"
    assert found.zeros.model_dump() == {
        "truncated": 1, "thought_only": 1, "empty": 1, "unparsed": 1, "wrong": 1
    }  # fmt: skip
    assert (found.counts.empty, found.counts.thought_only, found.counts.truncated) == (3, 2, 2)
    assert (found.rates.truncated, found.rates.unparsed) == (round(2 / 7, 6), round(1 / 7, 6))
    said = "first: scored nothing: 1 cut by a limit, 1 silent after thinking, 1 silent, 1 unparsed, 1 wrong"
    assert said in headlines(summarise_suite(suite(), [JobRecord(job_of(suite()), None, rows)]))


def test_a_job_that_failed_still_tells_what_had_finished() -> None:
    found = result(
        [row(0), row(1, reward=0.0), row(2, "missing")], planned=3, problems=("the server changed",)
    )
    assert (found.status, found.counts.completed, found.counts.missing, found.score) == (
        "failed",
        2,
        1,
        round(1 / 3, 6),
    )


def broken() -> Iterator[Sample]:
    yield row(0)
    yield row(1)
    raise VerificationError("records.jsonl line 3 is no row", "torn")


def test_records_that_end_in_the_middle_fail_the_job_and_what_was_read_counts() -> None:
    asked = suite()
    (found,) = summarise_suite(asked, [JobRecord(job_of(asked), 4, broken(), primary=PRIMARY)]).jobs
    assert (found.status, found.counts.planned, found.counts.completed, found.counts.missing) == (
        "failed",
        4,
        2,
        2,
    )
    assert (found.score, found.score_ceiling, found.metrics) == (0.5, 1.0, {PRIMARY: 0.5})
    assert (found.low, found.high, found.interval_method, found.wilson) == (None, None, "none", None)
    assert found.problems == (
        "its records cannot be read beyond 2 row(s): records.jsonl line 3 is no row; torn",
    )


@pytest.mark.parametrize(
    ("rows", "planned", "fault"),
    [
        ([row(0), row(1), row(0)], 3, "1 task(s) in several places"),
        ([row(0), row(0)], 2, "1 rollout(s) twice"),
        ([row(0), row(1, entry="second")], 1, "1 row(s) are of another job"),
        ([row(0), row(1)], 1, "tell of 2 rollout(s), and 1 were planned"),
        ([row(0)], 2, "tell of 1 rollout(s), and 2 were planned"),
    ],
)
def test_rows_that_were_not_planned_so_fail_the_job(rows: list[Sample], planned: int, fault: str) -> None:
    found = result(rows, planned)
    assert found.status == "failed"
    assert any(fault in problem for problem in found.problems), found.problems


def test_a_job_that_was_never_begun_misses_all_it_had_planned() -> None:
    refused = result([], 30, error="the tokenizer is missing")
    assert (refused.status, refused.counts.missing, refused.score) == ("failed", 30, None)
    cancelled = result([], 30, cancelled=True)
    assert (cancelled.status, cancelled.counts.planned, cancelled.problems) == ("cancelled", 30, ())
    assert result([], None).status == "failed", "nothing was asked at all"


def test_a_budget_makes_a_partial_job_also_before_its_first_answer_and_is_told() -> None:
    found = result([row(0), row(1, "missing")], 2, budget="tokens")
    assert found.status == "partial"
    assert result([row(0, "missing")], 1, budget="wall_seconds").status == "partial"
    assert result([row(0)], 1, budget="tokens").status == "done", "all had been answered"
    summary = summarise_suite(suite(), [JobRecord(job_of(suite()), 1, [row(0, "missing")], budget="tokens")])
    assert "first: its budget of tokens was reached" in headlines(summary)


def test_the_run_is_what_the_worst_of_its_jobs_is() -> None:
    asked = suite("first", "second")
    fine = JobRecord(job_of(asked, "first"), 1, [row(0)])

    def status(**facts: object) -> str:
        rows = [row(0, entry="second"), row(1, "errored", entry="second")]
        other = JobRecord(job_of(asked, "second"), 2, rows, **facts)  # pyright: ignore
        return summarise_suite(asked, [fine, other]).status

    assert status() == "partial"
    assert status(problems=("changed",)) == "failed"
    assert status(cancelled=True) == "cancelled"
    assert summarise_suite(suite(), [fine]).status == "done"
    assert summarise_suite(suite(), [fine], problems=["a key stands in run.log"]).status == "failed"


def test_an_overall_figure_is_told_only_where_it_is_official_and_everything_was_answered() -> None:
    reported = {"OVERALL": 0.7, "live": 0.6}
    whole = result([row(0)], 1, reported=reported, official=True)
    assert (whole.official, whole.reported) == (True, reported)
    for found in (
        result([row(0)], 1, reported=reported),
        result([row(0), row(1, "errored")], 2, reported=reported, official=True),
        result([row(0), row(1, "missing")], 2, reported=reported, official=True),
    ):
        assert (found.official, found.reported) == (False, {"live": 0.6})
    lines = headlines(summarise_suite(suite(), [JobRecord(job_of(suite()), 1, [row(0)], reported=reported)]))
    assert (
        "first: as the evaluator itself reports it (of what was asked, not the official score): live 0.6"
        in lines
    )


def test_there_is_no_score_over_several_jobs() -> None:
    asked = suite("first", "second")
    summary = summarise_suite(
        asked,
        [
            JobRecord(job_of(asked, "first"), 1, [row(0, reward=1.0)]),
            JobRecord(job_of(asked, "second"), 1, [row(0, reward=0.0, entry="second")]),
        ],
    )
    assert not {"score", "mean", "total", "metrics", "overall"} & set(SuiteSummary.model_fields)
    assert "0.5" not in markdown(summary)


def test_repeats_are_answers_only_where_they_may_differ_and_do() -> None:
    def repeats(same: bool, seeds: bool, **generation: object) -> tuple[float | None, dict[str, float]]:
        rows = [
            row(
                task,
                rollout=n,
                reward=float(n == 0),
                seed=n if seeds else generation.get("seed"),
                output_digest=f"{task}" if same else f"{task} {n}",
            )
            for task in range(3)
            for n in range(4)
        ]
        asked = suite(**generation)
        (found,) = summarise_suite(asked, [JobRecord(job_of(asked), 12, rows)]).jobs
        assert found.repeats is not None
        return found.repeats.mean_at_k, dict(found.repeats.pass_at_k)

    real = (0.25, {"1": 0.25, "2": 0.5, "4": 1.0})
    assert repeats(False, False, temperature=0.6) == real
    assert repeats(False, True, temperature=0.6, seed=7) == real
    assert repeats(False, False) == real, "a server's own sampling may differ"
    for refused in (
        repeats(True, False, temperature=0.6),
        repeats(False, False, temperature=0.0),
        repeats(False, False, temperature=0.6, seed=7),
    ):
        assert refused == (None, {})


def test_subsets_stand_below_their_job_and_the_job_is_over_all_their_rows() -> None:
    rows = [row(n, reward=float(n % 3 == 0), family="a" if n % 2 else "b") for n in range(12)]
    found = result(rows, 12)
    assert [family.family for family in found.families] == ["b", "a"]
    assert [family.counts.planned for family in found.families] == [6, 6]
    alone = score_family(rows, None, sampled=True)
    assert (found.score, found.low, found.high, found.wilson) == (
        alone.score,
        alone.low,
        alone.high,
        alone.wilson,
    )
    assert "| first | b | 6 | 6 |" in markdown(
        summarise_suite(suite(), [JobRecord(job_of(suite()), 12, rows)])
    )


def prepared(run: Path, **changed: str) -> tuple[Path, list[JobRecord]]:
    """A run of two jobs that are about to be recorded."""
    run.mkdir(parents=True)
    asked = suite("first", "second", **changed)  # pyright: ignore
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
def test_six_times_as_many_rows_need_no_more_memory() -> None:
    few, many = peak_mib(10_000), peak_mib(60_000)
    assert many < few + 16


def peak_mib(rows: int) -> int:
    """The most memory that a process held which recorded so many rows."""
    side = Path(__file__).parent / "peak_side.py"
    done = subprocess.run(
        [sys.executable, side, str(rows)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
    )
    return int(done.stdout)


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
