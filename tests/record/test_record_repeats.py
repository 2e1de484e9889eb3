"""Several rollouts of a task: identical ones bring no evidence, real ones give mean@k and pass@k."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.record import asked
from assay.record.render import repeated
from assay.record.repeats import Repeats, estimate, pass_at
from assay.record.sample import Sample, Seconds, Status
from assay.record.scores import FamilyScore, score_family

FEW = settings(max_examples=60, deadline=None)
ROUNDING = 2e-6


def row(
    task: int, rollout: int, reward: float | None, output: str | None = "same", status: Status = "scored"
) -> Sample:
    """A rollout with that reward and output."""
    return Sample(
        entry="e",
        task_key=f"task {task}",
        rollout=rollout,
        seed=None,
        family="e",
        cluster=f"question {task}",
        prompt_digest=None,
        answer_digest=output,
        output_digest=output,
        reward=reward,
        rewards={} if reward is None else {"right": reward},
        status=status if reward is not None else "errored",
        error=None if reward is not None else "reason",
        empty=False,
        finish_reason=None,
        stop_condition=None,
        prompt_tokens=None,
        completion_tokens=None,
        turns=1,
        attempts=1,
        seconds=Seconds(),
        record="e/traces.jsonl",
        line=1,
    )


def repeats(rows: list[Sample], sampled: bool = True) -> Repeats:
    found = score_family(rows, None, sampled).repeats
    assert found is not None
    return found


def told(rows: list[Sample], sampled: bool) -> list[str]:
    family = score_family(rows, None, sampled)
    assert family.repeats is not None
    return repeated(family, family.repeats)


REWARD = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1), st.none())
TASKS = st.lists(st.tuples(REWARD, st.booleans()), min_size=1, max_size=12)


def once(tasks: Sequence[tuple[float | None, bool]]) -> list[Sample]:
    return [
        row(number, 0, reward, status="truncated" if cut else "scored")
        for number, (reward, cut) in enumerate(tasks)
    ]


def copied(rows: list[Sample], times: int) -> list[Sample]:
    """Every rollout again and again, as a deterministic server gives it."""
    return [row.model_copy(update={"rollout": number}) for row in rows for number in range(times)]


def width(family: FamilyScore) -> float:
    return math.inf if family.low is None or family.high is None else family.high - family.low


@FEW
@given(TASKS, st.integers(2, 20), st.booleans())
def test_every_rollout_repeated_identically_leaves_score_and_interval_as_they_were(
    tasks: list[tuple[float | None, bool]], times: int, sampled: bool
) -> None:
    rows = once(tasks)
    alone = score_family(rows, None, sampled)
    often = score_family(copied(rows, times), None, sampled)
    assert (often.clusters, often.interval_method) == (alone.clusters, alone.interval_method)
    assert (often.score, often.low, often.high) == pytest.approx(
        (alone.score, alone.low, alone.high), abs=ROUNDING
    )
    assert often.truncated_rate == alone.truncated_rate
    assert alone.repeats is None


@FEW
@given(TASKS, st.data())
def test_no_task_repeated_identically_counts_as_another_question(
    tasks: list[tuple[float | None, bool]], data: st.DataObject
) -> None:
    rows = once(tasks)
    times = data.draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows)))
    often = [
        item.model_copy(update={"rollout": number})
        for item, count in zip(rows, times, strict=True)
        for number in range(count)
    ]
    before, after = score_family(rows, None), score_family(often, None)
    assert after.clusters == before.clusters
    if before.interval_method == "clopper-pearson":
        assert width(after) >= width(before) - ROUNDING


@FEW
@given(TASKS, st.integers(2, 20), st.booleans())
def test_identical_repeats_are_told_in_a_plain_sentence_and_give_no_pass_at_k(
    tasks: list[tuple[float | None, bool]], times: int, sampled: bool
) -> None:
    assume(any(reward is not None for reward, _ in tasks))
    rows = copied(once(tasks), times)
    found = repeats(rows, sampled)
    assert found.one_answer
    assert (found.distinct_min, found.distinct_mean, found.distinct_max) == (1, 1.0, 1)
    assert (found.mean_at_k, found.pass_at_k) == (None, {})
    lines = told(rows, sampled)
    assert any(f"one answer {times} times" in line and "no more evidence" in line for line in lines)
    assert not any("@" in line for line in lines)


def test_distinct_answers_are_counted_task_by_task() -> None:
    rows = [row(0, 0, 1.0, "a"), row(0, 1, 1.0, "a"), row(0, 2, 0.0, "b")]
    rows += [row(1, number, 0.0, "a") for number in range(3)]
    rows += [row(2, number, 0.5, f"{number}") for number in range(3)]
    rows += [row(3, number, None, None) for number in range(3)]
    found = repeats(rows)
    assert (found.rollouts, found.distinct_min, found.distinct_max) == (3, 1, 3)
    assert found.distinct_mean == 2.0
    assert not found.one_answer
    assert told(rows, True)[0] == "distinct answers a task: 1 least, 2 in the mean, 3 most, of 3 rollouts"


def test_rollouts_that_nothing_makes_differ_are_no_samples_when_they_do() -> None:
    rows = [row(0, 0, 1.0, "a"), row(0, 1, 0.0, "b")]
    assert (repeats(rows, sampled=False).mean_at_k, repeats(rows, sampled=False).pass_at_k) == (None, {})
    assert any("not deterministic" in line for line in told(rows, sampled=False))
    assert repeats(rows).mean_at_k == 0.5
    assert told(rows, sampled=True)[1:] == ["mean@2 0.500, pass@1 0.500, pass@2 1.000"]


def test_where_nothing_was_answered_nothing_is_said_of_the_answers() -> None:
    rows = [row(0, number, None, None) for number in range(2)]
    found = repeats(rows)
    assert (found.distinct_min, found.one_answer, found.mean_at_k, found.pass_at_k) == (None, False, None, {})
    assert told(rows, True) == ["no rollout was answered"]


def test_a_failed_rollout_is_a_wrong_one_and_a_fraction_is_no_right_or_wrong() -> None:
    failed = [row(0, 0, 1.0, "a"), row(0, 1, None, None), row(0, 2, 0.0, "c")]
    assert repeats(failed).pass_at_k["1"] == pytest.approx(1 / 3, abs=1e-6)
    assert repeats(failed).mean_at_k == pytest.approx(1 / 3, abs=1e-6)
    fraction = [row(0, 0, 0.5, "a"), row(0, 1, 1.0, "b")]
    assert (repeats(fraction).mean_at_k, repeats(fraction).pass_at_k) == (0.75, {})


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_one(case: tuple[int, int, int]) -> None:
    n, right, k = case
    draws = list(itertools.combinations([True] * right + [False] * (n - right), k))
    assert estimate(n, right, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


def test_pass_at_k_is_told_for_powers_of_two_and_for_all_rollouts() -> None:
    found = pass_at({(20, 5): 1, (20, 0): 1})
    assert list(found) == ["1", "2", "4", "8", "16", "20"]
    assert found["1"] == pytest.approx(0.125)
    assert found["20"] == 0.5
    assert list(found.values()) == sorted(found.values())
    assert list(pass_at({(2, 1): 1})) == ["1", "2"]


def test_a_task_with_one_rollout_has_no_repeats() -> None:
    assert score_family(once([(1.0, False), (None, False)]), None, True).repeats is None


@pytest.mark.parametrize(
    ("sampling", "seeds", "differ"),
    [
        ({"temperature": 0.6}, True, True),
        ({"temperature": 0.6}, False, True),
        ({"temperature": 0.6, "seed": 3}, False, False),
        ({"temperature": 0.6, "seed": 3}, True, True),
        ({"temperature": 0.0}, True, False),
        ({"temperature": 0}, False, False),
        ({}, True, False),
        ({"temperature": True}, True, False),
        ({"temperature": "0.6"}, True, False),
    ],
)
def test_rollouts_may_differ_where_the_sampling_draws_and_not_from_one_seed(
    sampling: dict[str, object], seeds: bool, differ: bool
) -> None:
    assert asked.may_differ(sampling, seeds) is differ


def test_sampling_is_told_flat_as_it_reaches_the_server() -> None:
    body = {"min_p": 0.0, "seed": 3, "chat_template_kwargs": {"enable_thinking": True}}
    native = {
        "sampling": {"temperature": 0.0, "max_tokens": 32768, "extra_body": body},
        "env": {"agent": {"max_turns": 16, "max_output_tokens": 32768, "max_input_tokens": None}},
    }
    for dialect in ("eval", "vf-eval"):
        found = asked.sampling(dialect, native)
        assert found == {
            "chat_template_kwargs": {"enable_thinking": True},
            "max_tokens": 32768,
            "min_p": 0.0,
            "seed": 3,
            "temperature": 0.0,
        }
        limited = asked.limits(dialect, native)
        assert limited == {"max_turns": 16, "max_output_tokens": 32768}
        assert asked.words(found, limited) == (
            "chat_template_kwargs enable_thinking=true, max_tokens 32768, min_p 0, seed 3, temperature 0, "
            "max_turns 16, max_output_tokens 32768"
        )
    assert asked.sampling("eval", {"sampling": {"temperature": math.nan}}) == {"temperature": "nan"}
    assert asked.sampling("eval", {}) == asked.limits("eval", {"env": 3}) == {}


def test_sampling_of_0_1_is_its_table_over_the_short_keys() -> None:
    native = {
        "temperature": 0.9,
        "max_tokens": 10,
        "sampling": {"max_tokens": 64, "extra_body": {"min_p": 0}},
    }
    assert asked.sampling("vf-eval-v0", native) == {"temperature": 0.9, "max_tokens": 64, "min_p": 0}
    assert asked.sampling("vf-eval-v0", {**native, "sampling_args": {"seed": 7}})["seed"] == 7
    assert asked.limits("vf-eval-v0", native) == {}
