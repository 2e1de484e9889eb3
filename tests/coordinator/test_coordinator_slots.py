"""Sharing a target's slots: nobody starves, nobody gets what it cannot use, nothing wanted lies idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.coordinator.slots import Claim, share

CLAIMS = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 64)), min_size=1, max_size=12)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, dict[str, Claim]]:
    claims = {f"job-{number}": Claim(*claim) for number, claim in enumerate(draw(CLAIMS))}
    return draw(st.integers(len(claims), 200)), claims


def wanted(claim: Claim) -> int:
    return min(max(claim.wants, 1), claim.most)


@given(divisions())
def test_every_job_holds_at_least_one_slot_and_together_never_more_than_there_are(
    division: tuple[int, dict[str, Claim]],
) -> None:
    capacity, claims = division
    shares = share(capacity, claims)
    assert list(shares) == list(claims)
    assert sum(shares.values()) <= capacity
    for job, slots in shares.items():
        assert 1 <= slots <= claims[job].most


@given(divisions())
def test_no_slot_is_idle_while_a_job_may_hold_more(division: tuple[int, dict[str, Claim]]) -> None:
    capacity, claims = division
    shares = share(capacity, claims)
    most = sum(claim.most for claim in claims.values())
    assert sum(shares.values()) == min(capacity, most)


@given(divisions())
def test_a_job_that_lacks_slots_has_hardly_fewer_than_any_other(
    division: tuple[int, dict[str, Claim]],
) -> None:
    capacity, claims = division
    shares = share(capacity, claims)
    for job, claim in claims.items():
        if shares[job] < wanted(claim):
            assert all(shares[job] >= slots - 1 for slots in shares.values())


@given(divisions(), st.integers(1, 50))
def test_more_slots_take_none_away_from_what_a_job_wants(
    division: tuple[int, dict[str, Claim]], more: int
) -> None:
    capacity, claims = division
    before, after = share(capacity, claims), share(capacity + more, claims)
    for job, claim in claims.items():
        assert min(after[job], wanted(claim)) >= min(before[job], wanted(claim))


@pytest.mark.parametrize(
    ("capacity", "claims", "expected"),
    [
        (4, {"a": Claim(4, 4)}, {"a": 4}),
        (4, {"a": Claim(4, 4), "b": Claim(4, 4)}, {"a": 2, "b": 2}),
        (5, {"a": Claim(4, 4), "b": Claim(4, 4)}, {"a": 3, "b": 2}),
        (4, {"a": Claim(0, 4), "b": Claim(4, 4)}, {"a": 1, "b": 3}),
        (8, {"a": Claim(1, 4), "b": Claim(2, 2), "c": Claim(8, 8)}, {"a": 1, "b": 2, "c": 5}),
        (8, {"a": Claim(1, 4), "b": Claim(2, 4)}, {"a": 4, "b": 4}),
    ],
)
def test_slots_are_divided_as_a_person_would(
    capacity: int, claims: dict[str, Claim], expected: dict[str, int]
) -> None:
    assert share(capacity, claims) == expected


def test_more_jobs_than_slots_cannot_be_active_at_once() -> None:
    with pytest.raises(ValueError, match="2 jobs cannot share 1 slots"):
        share(1, {"a": Claim(1, 1), "b": Claim(1, 1)})
