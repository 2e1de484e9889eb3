"""Sampling, against slow and plain definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.sampling import Sampler, Sampling, pick, token_logprob, top_ids

LOGITS = np.array([0.5, 2.0, 1.0, 2.0, -3.0, 0.0], np.float32)


def draws(sampling: Sampling, count: int = 4000, logits: np.ndarray = LOGITS, seed: int = 1) -> np.ndarray:
    """The share of each token in `count` draws."""
    sampler = Sampler(sampling, seed, 0)
    tokens = [sampler.choose(logits, int(logits.argmax())) for _ in range(count)]
    return np.bincount(tokens, minlength=logits.size) / count


def probabilities(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax_at_the_temperature(temperature: float) -> None:
    expected = probabilities(LOGITS.astype(np.float64) / temperature)
    assert np.abs(draws(Sampling(temperature=temperature)) - expected).max() < 0.03


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(top_k=1), {1}),  # 1 and 3 tie: the lowest id
        (Sampling(top_k=3), {1, 2, 3}),
        (Sampling(top_k=100), {0, 1, 2, 3, 4, 5}),
        (Sampling(top_p=0.3), {1}),
        (Sampling(top_p=0.6), {1, 3}),
        (Sampling(top_p=0.0), {1}),
        (Sampling(min_p=0.9), {1, 3}),
        (Sampling(min_p=0.3), {1, 2, 3}),
        (Sampling(top_k=3, top_p=0.6, min_p=0.1), {1, 3}),
        (Sampling(temperature=0), {1}),
        (Sampling(temperature=0, logit_bias={4: 100.0}), {4}),
        (Sampling(temperature=0, logit_bias={1: -100.0, 3: -100.0}), {2}),
        (Sampling(temperature=1e-300), {1, 3}),
    ],
)
def test_only_the_allowed_tokens_are_drawn(sampling: Sampling, allowed: set[int]) -> None:
    assert set(np.flatnonzero(draws(sampling))) == allowed


def test_top_p_of_a_flat_distribution_needs_more_than_the_trial() -> None:
    flat = np.zeros(5000, np.float32)
    shares = draws(Sampling(top_p=0.5), 3000, flat)
    assert shares[2500:].sum() == 0
    assert shares[1500:2500].sum() > 0.3


def test_penalties_count_what_was_generated() -> None:
    close = np.array([1.0, 0.5, 0.0], np.float32)
    greedy = Sampler(Sampling(temperature=0, presence_penalty=0.6, frequency_penalty=0.0), 0, 0)
    assert [greedy.choose(close, 0) for _ in range(4)] == [0, 1, 0, 0]
    greedy = Sampler(Sampling(temperature=0, frequency_penalty=0.3), 0, 0)
    assert [greedy.choose(close, 0) for _ in range(5)] == [0, 0, 1, 0, 1]


def test_the_same_seed_gives_the_same_tokens_and_another_choice_others() -> None:
    flat = np.zeros(1000, np.float32)

    def tokens(seed: int, choice: int) -> list[int]:
        sampler = Sampler(Sampling(), seed, choice)
        return [sampler.choose(flat, 0) for _ in range(20)]

    assert tokens(7, 0) == tokens(7, 0)
    assert len({tuple(tokens(seed, choice)) for seed in (-1, 0, 7, 2**40) for choice in (0, 1)}) == 8


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.integers(1, 70))
def test_the_best_ids_are_those_of_a_stable_sort(values: list[int], count: int) -> None:
    scores = np.array(values, np.float64)
    assert list(top_ids(scores, count)) == sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]


@given(
    st.lists(st.sampled_from([0.0, 0.25, 1.0, 1e-300, 3.5]), min_size=1, max_size=1500).filter(any),
    st.floats(0, 1, exclude_max=True),
)
def test_a_pick_is_where_the_running_sum_passes_the_share(weights: list[float], share: float) -> None:
    place = pick(np.array(weights), share)
    assert weights[place] > 0
    mark = share * math.fsum(weights)
    slack = 1e-9 * math.fsum(weights)
    assert math.fsum(weights[:place]) <= mark + slack
    assert mark <= math.fsum(weights[: place + 1]) + slack


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 5))
def test_the_best_of_many_ids_are_those_of_a_stable_sort(seed: int, count: int, kinds: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 10**kinds, 3001).astype(np.float64)
    assert list(top_ids(scores, count)) == list(np.argsort(-scores, kind="stable")[:count])


def test_log_probabilities_are_those_of_the_whole_vocabulary() -> None:
    scored = token_logprob(LOGITS, 2, 3)
    expected = np.log(probabilities(LOGITS.astype(np.float64)))
    assert scored.logprob == pytest.approx(expected[2], abs=1e-12)
    assert [token for token, _ in scored.top] == [1, 3, 2]
    assert [value for _, value in scored.top] == pytest.approx(expected[[1, 3, 2]].tolist(), abs=1e-12)
