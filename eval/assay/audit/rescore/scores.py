"""What a record says that answers scored, held against what their scorer gives now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.audit.check import Check
from assay.record.native import Row
from assay.record.sample import Sample

REWARD = "reward"
# What a scorer raises that would reach a network, and what a sandbox that is not to be had.
ELSEWHERE = ("NetworkError", "SandboxError")
SHOWN_CHARACTERS = 200
# Sums and overlaps of floats may differ in the last bit from machine to machine.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


@dataclass(frozen=True)
class Score:
    """What one answer scored.

    Attributes:
        rewards: By name; the reward itself under "reward".
        failed: Why there is none; None where there is one.
    """

    rewards: Mapping[str, float]
    failed: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether there is none because the scorer had to reach what it may not, or what is not here."""
        return self.failed is not None and self.failed.startswith(ELSEWHERE)


Scores = Mapping[str, Score]
"""By the place of each answer's record, e.g. "aime24/traces.jsonl line 3"."""


def of_row(row: Row) -> Score:
    """The score of a native row."""
    if not row.ok:
        return Score({}, (row.error or "it gives no reason")[:SHOWN_CHARACTERS])
    return Score({**row.rewards, REWARD: row.reward})


def of_sample(row: Sample) -> Score:
    """The score of a suite's row."""
    if row.reward is None:
        return Score({}, (row.error or f"it is {row.status}")[:SHOWN_CHARACTERS])
    return Score({**row.rewards, REWARD: row.reward})


def held(
    name: str, recorded: Scores, again: Callable[[], Scores], how: str, faults: Sequence[str] = ()
) -> Check:
    """The verdict over every answer that has a recorded score.

    Where a score differs the scorer is run a third time: one that agrees with itself convicts the record,
    one that does not convicts nothing.

    Args:
        name: The check's.
        recorded: What the record says.
        again: Scores the same answers now.
        how: What scored them, for a reader.
        faults: What else is wrong with the record, each with its place first; `again` may add to it.
    """
    scored = {place: score for place, score in recorded.items() if score.failed is None}
    if not scored:
        nothing = Check(name, "UNKNOWN", ("it has no answer with a score",))
        return Check(name, "FAIL", tuple(faults)) if faults else nothing
    now = again()
    convicted = {fault.partition(": ")[0] for fault in faults}
    different = {
        place: lines
        for place, score in scored.items()
        if place not in convicted and (lines := compare(score, now.get(place)))
    }
    third = again() if different else {}
    wavering = {place for place in different if compare(now.get(place, NOTHING), third.get(place))}
    elsewhere = [place for place in different if now.get(place, NOTHING).elsewhere]
    wrong = [place for place in different if place not in wavering and place not in elsewhere]
    told = [f"{place}: {line}" for place in wrong for line in different[place]]
    if faults or told:
        return Check(name, "FAIL", (*faults, *told))
    unknown = [f"{place}: the scorer gives another score each time" for place in sorted(wavering)]
    unknown += [f"{place}: {now[place].failed}" for place in elsewhere if place not in wavering]
    agreed = f"{len(scored) - len(different)} of {len(scored)} rewards are what {how} gives now"
    return Check(name, "UNKNOWN" if unknown else "PASS", (agreed, *unknown))


NOTHING = Score({}, "the scorer gives it no score")


def compare(recorded: Score, now: Score | None) -> list[str]:
    """How two scores of an answer differ, a line for each reward."""
    found = now or NOTHING
    if recorded.failed is not None and found.failed is not None:
        return []
    if found.failed is not None:
        return [f"recorded {REWARD} {recorded.rewards.get(REWARD)}, and now: {found.failed}"]
    return [
        f"recorded {reward} {recorded.rewards.get(reward)}, the scorer gives {found.rewards.get(reward)}"
        for reward in sorted(recorded.rewards.keys() | found.rewards.keys())
        if not same(recorded.rewards.get(reward), found.rewards.get(reward))
    ]


def same(one: float | None, other: float | None) -> bool:
    """Whether two rewards are one."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
