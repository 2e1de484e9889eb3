"""Counts, scores and outcomes for any mixture of what can become of a rollout."""

from __future__ import annotations

import io
import json
import math
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import VerificationError
from assay.record.render import FOOTNOTES, headlines, markdown, show
from assay.record.results import load_summary
from assay.record.sample import STATUSES, Baseline, Sample, Seconds, Status
from assay.record.scores import count, score_families
from assay.record.summary import EXIT_CODES, EntryFacts, Summary, failures, outcome

FEW = settings(max_examples=60)


def sample(number: int, status: Status, reward: float = 0.0, question: int = 0, family: str = "f") -> Sample:
    """A row with that fate."""
    answered = status in {"scored", "truncated"}
    return Sample(
        entry="e",
        task_key=f"{family}/{number}",
        rollout=0,
        seed=None,
        family=family,
        cluster=f"question {family} {question}",
        prompt_digest=None,
        answer_digest=f"{number % 2}" if answered else None,
        output_digest=f"{number % 2}" if answered else None,
        reward=reward if answered else None,
        rewards={},
        status=status,
        error="reason" if status == "errored" else None,
        empty=False,
        finish_reason=None,
        stop_condition=None,
        prompt_tokens=None,
        completion_tokens=number if answered else None,
        turns=1,
        attempts=1,
        seconds=Seconds(),
        record="e/traces.jsonl",
        line=number,
    )


FATES = st.lists(
    st.tuples(
        st.sampled_from(STATUSES), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 6), st.sampled_from("fgh")
    ),
    min_size=1,
    max_size=20,
)


def made(fates: list[tuple[Status, float, int, str]]) -> list[Sample]:
    return [sample(number, *fate) for number, fate in enumerate(fates)]


@FEW
@given(FATES)
def test_counts_add_up_over_families_and_over_the_run(fates: list[tuple[Status, float, int, str]]) -> None:
    rows = made(fates)
    total = count(rows)
    assert total.planned == len(rows) == total.scored + total.errored + total.truncated + total.missing
    families = score_families(rows, {}, {})
    for name in ("planned", "scored", "errored", "truncated", "missing", "empty", "duplicates"):
        assert getattr(total, name) == sum(getattr(family.counts, name) for family in families)
    assert [family.family for family in families] == list(dict.fromkeys(row.family for row in rows))
    assert total.duplicates == len(rows) - len({row.cluster for row in rows})


@FEW
@given(FATES)
def test_a_failed_row_never_leaves_the_denominator(fates: list[tuple[Status, float, int, str]]) -> None:
    rows = made(fates)
    for family in score_families(rows, {}, {}):
        mine = [row for row in rows if row.family == family.family]
        total = math.fsum(row.reward or 0.0 for row in mine)
        failed = sum(row.status in {"errored", "missing"} for row in mine)
        if failed == len(mine):
            assert (family.score, family.low, family.high, family.interval_method) == (
                None,
                None,
                None,
                "none",
            )
            continue
        assert family.score == pytest.approx(total / len(mine), abs=1e-6)
        assert family.score_ceiling == pytest.approx((total + failed) / len(mine), abs=1e-6)
        assert family.score is not None
        assert family.score <= (family.score_ceiling or 0.0) + 1e-6
        if family.low is not None and family.high is not None:
            assert family.low - 1e-6 <= family.score <= family.high + 1e-6


@FEW
@given(FATES, st.booleans(), st.booleans())
def test_an_outcome_is_done_only_when_every_row_has_a_score(
    fates: list[tuple[Status, float, int, str]], faulty: bool, cancelled: bool
) -> None:
    counts = count(made(fates))
    result = outcome(counts, ["a fault"] if faulty else [], cancelled)
    if cancelled:
        assert result == "cancelled"
    elif faulty or counts.answered == 0:
        assert result == "failed"
    else:
        assert (result == "done") == (counts.answered == counts.planned)
    assert EXIT_CODES[result] == {"done": 0, "partial": 4, "failed": 5, "cancelled": 6}[result]


def facts_of(rows: list[Sample], **changed: object) -> EntryFacts:
    counts = count(rows)
    values: dict[str, object] = {
        "entry": "e",
        "tasks": len({row.task_key for row in rows}),
        "tasks_found": len({row.task_key for row in rows if row.status != "missing"}),
        "rollouts": 1,
        "seeds": (),
        "sampling": {"temperature": 0.0, "max_tokens": 64},
        "limits": {"max_turns": 1},
        "counts": counts,
        "truncated_rate": counts.truncated_rate,
    }
    return EntryFacts.model_validate(values | changed)


def summary_of(rows: list[Sample], **changed: object) -> Summary:
    values: dict[str, object] = {
        "profile": "p",
        "description": "d",
        "pins": "production",
        "status": "partial",
        "problems": ("the server changed",),
        "notes": ("the evaluator ended badly",),
        "runtime": "subprocess",
        "egress": "not enforced",
        "model": "m",
        "server": "assay-0",
        "counts": count(rows),
        "entries": (facts_of(rows),),
        "failures": failures(rows),
        "families": score_families(rows, {"e": {"f": Baseline(answer="Yes", score=0.875)}}, {}),
    }
    return Summary.model_validate(values | changed)


def test_a_summary_shows_every_score_with_its_counts_interval_and_baseline() -> None:
    rows = [sample(0, "scored", 1.0, 0), sample(1, "scored", 0.0, 1), sample(2, "errored", 0.0, 2)]
    rows += [sample(3, "truncated", 1.0, 3), sample(4, "scored", 1.0, 4, "g")]
    text = markdown(summary_of(rows))
    line = next(line for line in text.splitlines() if line.startswith("| f |"))
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:7] == ["f", "4", "2", "1", "1", "0", "0.500 to 0.750"]
    assert cells[8:] == ["0.875", "2"]
    exact = next(line for line in text.splitlines() if line.startswith("| g |"))
    assert "0.025 to 1.000*" in exact
    for said in ("problem: the server changed", "note: the evaluator ended badly", "egress: not enforced"):
        assert said in text
    assert all(note in text for note in FOOTNOTES)


def test_no_line_of_a_summary_is_one_number_over_families() -> None:
    rows = [sample(0, "scored", 1.0, 0, "f"), sample(1, "scored", 0.0, 1, "g")]
    summary = summary_of(rows)
    assert not any("0.5" in line for line in headlines(summary))
    assert not {"score", "mean", "total"} & set(Summary.model_fields)


def test_a_shown_summary_fits_80_columns_and_holds_no_control_code() -> None:
    rows = [sample(0, "scored", 1.0, 0), sample(1, "errored", 0.0, 1)]
    captured = io.StringIO()
    with redirect_stdout(captured):
        show(summary_of(rows, server="\x1b[2Jassay"), stderr=False)
    text = captured.getvalue()
    assert "\\x1b[2Jassay" in text
    assert "\x1b" not in text
    table = text[text.index("family") : text.index("score: sum")]
    assert max(len(line) for line in table.splitlines()) <= 80


def test_the_same_rows_have_the_same_bounds_whoever_asked_them_and_other_questions_have_their_own() -> None:
    rows = [sample(number, "scored", number * 0.37 % 1, number) for number in range(20)]
    (mine,) = score_families(rows, {}, {})
    (theirs,) = score_families([row.model_copy(update={"entry": "other"}) for row in rows], {}, {})
    assert theirs == mine.model_copy(update={"entry": "other"})
    others = [sample(number, "scored", number * 0.37 % 1, number + 100) for number in range(20)]
    (elsewhere,) = score_families(others, {}, {})
    assert (elsewhere.score, elsewhere.wilson, elsewhere.clustered) == (
        mine.score,
        mine.wilson,
        mine.clustered,
    )
    assert (elsewhere.low, elsewhere.high) != (mine.low, mine.high)


def test_why_rows_failed_is_told_with_the_most_frequent_reason_first() -> None:
    reasons = ["a\n  b", "x" * 400, "c", "c", "a b", "a b", "d"]
    rows = [
        sample(number, "errored").model_copy(update={"error": reason})
        for number, reason in enumerate(reasons)
    ]
    rows.append(sample(9, "scored", 1.0))
    told = failures(rows)
    assert [(failure.error, failure.rows) for failure in told] == [("a b", 3), ("c", 2), ("x" * 300, 1)]
    summary = summary_of(rows)
    assert "errors: 3 row(s): a b" in headlines(summary)
    assert "- errors: 2 row(s): c\n" in markdown(summary)
    assert failures([sample(1, "scored", 1.0)]) == ()


def test_words_of_a_stranger_make_no_markup_in_the_markdown() -> None:
    rows = [sample(0, "scored", 1.0, 0, "f | 9 | <b>\n# h")]
    problem = "a\n\n# b [c](http://d) <img> `e`\x1b[2J"
    text = markdown(summary_of(rows, problems=(problem,), model="<i>m|n"))
    assert "- problem: a # b \\[c](http://d) \\<img> \\`e\\`" in text
    assert "\x1b" not in text
    assert not [line for line in text.splitlines()[1:] if line.startswith("#")]
    (row,) = [line for line in text.splitlines() if line.startswith("| f ")]
    assert row.replace("\\|", "").count("|") == 11


def test_a_summary_of_another_form_is_named_with_how_to_read_it(tmp_path: Path) -> None:
    rows = [sample(0, "scored", 1.0)]
    path = tmp_path / "summary.json"
    path.write_text(summary_of(rows).model_dump_json())
    assert load_summary(tmp_path) == summary_of(rows)
    path.write_text(json.dumps({"schema_version": "assay/summary/v2", "profile": "demo"}))
    with pytest.raises(VerificationError, match="is of the form assay/summary/v2") as caught:
        load_summary(tmp_path)
    assert "worktree.json" in caught.value.next


def test_a_summary_under_other_pins_says_so_before_all_else_and_productions_does_not() -> None:
    rows = [sample(0, "scored", 1.0)]
    lines = headlines(summary_of(rows, pins="test"))
    assert lines[1] == "PINS: test. Nothing here is the pinned evaluation that the profile's name stands for"
    assert f"- {lines[1]}\n" in markdown(summary_of(rows, pins="test"))
    assert "PINS" not in markdown(summary_of(rows))


def test_the_headlines_tell_how_many_answers_were_cut_in_the_run_and_in_each_entry() -> None:
    rows = [sample(0, "scored", 1.0), sample(1, "truncated"), sample(2, "errored"), sample(3, "missing")]
    lines = headlines(summary_of(rows))
    assert "truncated: 1 of 2 answers (50.0%)" in lines
    (entry,) = [line for line in lines if line.startswith("e: ")]
    assert entry == (
        "e: 3 of 4 tasks in the records, 1 rollout(s) each; truncated 1 of 2 answers (50.0%); "
        "asked with temperature 0, max_tokens 64, max_turns 1"
    )
    failed = [sample(0, "errored")]
    assert "truncated: 0 of 0 answers" in headlines(summary_of(failed))
    assert summary_of(failed).entries[0].truncated_rate is None


def test_seeds_are_told_with_the_rollouts_that_had_them() -> None:
    rows = [sample(0, "scored", 1.0)]
    seeded = facts_of(rows, rollouts=3, seeds=(7, 8, 9))
    lines = headlines(summary_of(rows, entries=(seeded,)))
    assert any("3 rollout(s) each, seeds 7 to 9;" in line for line in lines)


def test_rewards_are_told_by_name_as_means_over_all_that_was_planned() -> None:
    rows = [
        sample(0, "scored", 1.5).model_copy(update={"rewards": {"right": 1.0, "short": 1.0}}),
        sample(1, "truncated", 0.5).model_copy(update={"rewards": {"right": 0.0, "short": 1.0}}),
        sample(2, "errored"),
        sample(3, "missing"),
    ]
    (family,) = score_families(rows, {}, {})
    assert family.rewards == {"right": 0.25, "short": 0.5}
    assert family.truncated_rate == 0.5
    (nothing,) = score_families([sample(0, "errored")], {}, {})
    assert (nothing.rewards, nothing.truncated_rate) == ({}, None)
