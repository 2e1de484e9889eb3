"""Pairs: their order, their ratio, their intervals, and when a control voids them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.paired import abba, compare, control_is_void

speeds = st.lists(st.floats(1.0, 1000.0), min_size=2, max_size=12)


def test_pairs_come_in_abba_order() -> None:
    assert abba(6) == [True, False, False, True, True, False]


@given(speeds, st.floats(0.1, 10))
def test_a_constant_factor_is_found_exactly(theirs: list[float], factor: float) -> None:
    result = compare([factor * value for value in theirs], theirs, 1)
    assert result.ratio == pytest.approx(factor)
    assert result.mean_ratio == pytest.approx(factor)
    assert result.mde == pytest.approx(0, abs=1e-9)


@given(speeds, st.integers(0, 99))
def test_the_other_way_around_is_the_inverse(theirs: list[float], seed: int) -> None:
    ours = [value * (1.5 + math.sin(index)) for index, value in enumerate(theirs)]
    there, back = compare(ours, theirs, seed), compare(theirs, ours, seed)
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.sign_p == pytest.approx(back.sign_p)
    assert there.t_interval.low is not None
    assert back.t_interval.high is not None
    assert there.t_interval.low * back.t_interval.high == pytest.approx(1)


def test_a_worked_example() -> None:
    ours, theirs = [2.0, 4.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0]
    result = compare(ours, theirs, 7)
    d = [math.log(value) for value in ours]
    mean = sum(d) / 4
    spread = math.sqrt(sum((value - mean) ** 2 for value in d) / 3)
    assert result.ratio == pytest.approx(2)
    assert result.mean_ratio == pytest.approx(math.exp(mean))
    assert result.mde == pytest.approx(math.expm1((1.959964 + 0.841621) * spread / 2), rel=1e-5)
    assert result.t_interval.high == pytest.approx(math.exp(mean + 3.182446 * spread / 2), rel=1e-5)
    assert result.sign_p == pytest.approx(2 * 0.5**4)
    assert result == compare(ours, theirs, 7)


def test_too_few_pairs_have_no_bootstrap() -> None:
    assert compare([2.0, 2.1], [1.0, 1.0], 1).bootstrap.low is None
    assert compare([2.0], [1.0], 1).mde is None


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], []), ([0.0], [1.0]), ([math.nan], [1.0])])
def test_what_is_no_pair_of_speeds_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|positive"):
        compare(ours, theirs, 1)


def test_a_control_with_an_effect_is_void() -> None:
    noise = [1.01, 0.99, 1.02, 0.98, 1.0, 1.0]
    assert not control_is_void(compare(noise, [1.0] * 6, 1))
    assert control_is_void(compare([1.3 * value for value in noise], [1.0] * 6, 1))
    assert control_is_void(compare([1.0], [1.0], 1))
