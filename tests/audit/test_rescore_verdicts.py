"""What scoring again says of a record: who agrees, who lies, and of what nothing can be said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.audit.rescore.scores import REWARD, Score, Scores, compare, held

RIGHT = Score({"exact": 1.0, REWARD: 1.0})
WRONG = Score({"exact": 0.0, REWARD: 0.0})
NAMES = st.sampled_from(["a line 1", "a line 2", "a line 3"])
REWARDS = st.floats(0, 1).map(lambda value: Score({"exact": value, REWARD: value}))


def test_a_record_that_the_scorer_agrees_with_passes_with_its_number() -> None:
    recorded = {"a line 1": RIGHT, "a line 2": WRONG}
    found = held("rescore a", recorded, lambda: recorded, "the scorer")
    assert (found.verdict, found.evidence) == ("PASS", ("2 of 2 rewards are what the scorer gives now",))


def test_a_changed_reward_fails_and_names_its_line_and_both_values() -> None:
    found = held(
        "rescore a",
        {"a line 1": RIGHT, "a line 2": RIGHT},
        lambda: {"a line 1": RIGHT, "a line 2": WRONG},
        "x",
    )
    assert found.verdict == "FAIL"
    assert found.evidence == (
        "a line 2: recorded exact 1.0, the scorer gives 0.0",
        "a line 2: recorded reward 1.0, the scorer gives 0.0",
    )


def test_a_scorer_that_wavers_convicts_nothing_and_is_no_pass() -> None:
    turns = iter([WRONG, RIGHT])
    found = held("rescore a", {"a line 1": RIGHT}, lambda: {"a line 1": next(turns)}, "x")
    assert found.verdict == "UNKNOWN"
    assert "another score each time" in found.evidence[1]


def test_one_wavering_row_hides_no_lie_of_another() -> None:
    turns = iter([WRONG, RIGHT])
    recorded = {"a line 1": RIGHT, "a line 2": RIGHT}
    found = held("rescore a", recorded, lambda: {"a line 1": next(turns), "a line 2": WRONG}, "x")
    assert found.verdict == "FAIL"
    assert all(line.startswith("a line 2") for line in found.evidence)


@pytest.mark.parametrize("reason", ["NetworkError: offline: it would reach x", "SandboxError: no engine"])
def test_what_is_not_to_be_had_here_makes_a_score_unknown(reason: str) -> None:
    found = held("rescore a", {"a line 1": RIGHT}, lambda: {"a line 1": Score({}, reason)}, "x")
    assert (found.verdict, found.evidence[1]) == ("UNKNOWN", f"a line 1: {reason}")


def test_an_answer_that_breaks_the_scorer_did_not_earn_its_reward() -> None:
    broken = Score({}, "ValueError: a reply that names a NetworkError")
    found = held("rescore a", {"a line 1": RIGHT}, lambda: {"a line 1": broken}, "x")
    assert found.verdict == "FAIL"


def test_an_answer_that_the_scorer_does_not_know_fails() -> None:
    found = held("rescore a", {"a line 1": RIGHT}, dict, "x")
    assert (found.verdict, "gives it no score" in found.evidence[0]) == ("FAIL", True)


def test_a_run_without_a_scored_answer_is_unknown_and_no_scorer_is_started() -> None:
    def started() -> Scores:
        raise AssertionError

    found = held("rescore a", {"a line 1": Score({}, "it is missing")}, started, "x")
    assert found.verdict == "UNKNOWN"


def test_what_else_is_wrong_with_a_record_fails_it_whatever_it_scores() -> None:
    found = held("rescore a", {"a line 1": RIGHT}, lambda: {"a line 1": RIGHT}, "x", ["a line 1: odd"])
    assert (found.verdict, found.evidence) == ("FAIL", ("a line 1: odd",))


@given(st.dictionaries(NAMES, REWARDS, min_size=1), NAMES, REWARDS)
def test_a_record_passes_exactly_where_every_reward_is_the_scorers(
    scored: dict[str, Score], place: str, other: Score
) -> None:
    recorded = {**scored, place: other} if place in scored else scored
    found = held("rescore a", recorded, lambda: scored, "x")
    agrees = all(not compare(score, scored[name]) for name, score in recorded.items())
    assert (found.verdict == "PASS") == agrees
