"""How a target's slots are shared among the jobs that ask it: evenly, and none is left idle that is wanted.

A job's share is a number of requests that it may have in flight; the gateway holds each job to its own. What
the jobs want now is divided max-min fair: nobody gets nothing, and one that gets less than it wants has no
more than one slot less than any other gets of what it wants. What nobody wants now is divided likewise among
those that may hold more, so that a job that begins to ask finds slots there. The division is made anew
whenever a job begins, ends, or wants another number; what one gives back goes to the rest at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """What a job could do with slots.

    Attributes:
        wants: Slots that it could use now.
        most: Slots that it may ever hold, at least 1.
    """

    wants: int
    most: int


def share(capacity: int, claims: Mapping[str, Claim]) -> dict[str, int]:
    """Divide slots.

    Args:
        capacity: Slots of the target.
        claims: By job; those first that began first, who get the slot that does not divide.

    Returns:
        Slots by job, each at least 1 and at most the job's, in sum no more than `capacity`.

    Raises:
        ValueError: more jobs than slots.
    """
    if len(claims) > capacity:
        raise ValueError(f"{len(claims)} jobs cannot share {capacity} slots")
    wanted = {job: min(max(claim.wants, 1), claim.most) for job, claim in claims.items()}
    shares = fill(capacity, wanted)
    spare = {job: claim.most - shares[job] for job, claim in claims.items()}
    more = fill(capacity - sum(shares.values()), spare)
    return {job: shares[job] + more[job] for job in claims}


def fill(capacity: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Divide slots max-min fair.

    Args:
        capacity: Slots to divide.
        wanted: The most that each takes, in the order in which the rest that does not divide is given.
    """
    shares = {}
    left = capacity
    # The most modest first: what they do not want is there for the others; of equal ones the first come last,
    # since that is where what does not divide is left over.
    place = {job: number for number, job in enumerate(wanted)}
    ordered = sorted(wanted.items(), key=lambda item: (item[1], -place[item[0]]))
    for number, (job, most) in enumerate(ordered):
        shares[job] = min(most, left // (len(ordered) - number))
        left -= shares[job]
    return shares
