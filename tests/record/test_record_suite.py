"""A suite's results: what became of every planned rollout, whatever happened to the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_rows import PRIMARY, job_of, row, suite

from assay.errors import VerificationError
from assay.record.dataset_result import DatasetResult, JobRecord
from assay.record.sample import STATUSES, Baseline, Sample, Status
from assay.record.scores import score_family
from assay.record.suite_render import headlines, markdown
from assay.record.suite_results import (
    summarise_suite,
)
from assay.record.suite_summary import SuiteSummary

FEW = settings(max_examples=40, deadline=None)


def result(rows: list[Sample], planned: int | None = None, **facts: Any) -> DatasetResult:
    """The result of one job with those rows."""
    asked = suite()
    record = JobRecord(job_of(asked), planned, rows, primary=PRIMARY, **facts)
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
        other = JobRecord(job_of(asked, "second"), 2, rows, **facts)
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
