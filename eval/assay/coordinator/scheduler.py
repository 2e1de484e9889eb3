"""Who runs when: jobs begin in the order of the suite, as far as the run and their targets have room.

Two things bound a run: how many jobs are active at once, and each target's slots, of which an active job
always holds at least one. The first job in order that has room begins; one whose target is full is passed
over and stays first for the next slot there, so none waits behind jobs of another target and none is passed
over for ever. Jobs of one target divide its slots (`slots.share`). Once the run is to stop, nothing begins
any more, and what runs is waited for; its end is the business of whoever runs it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.coordinator.slots import Claim, share
from assay.coordinator.stop import Stop

LOOK_S = 1.0
"""Between two looks at what the active jobs want: what one does not use is lent to the others meanwhile."""
LOOKS = 5
"""A job wants the most that it wanted at any of so many looks, since between two requests it wants less."""


@dataclass(frozen=True)
class Work:
    """A job as the scheduler sees it.

    Attributes:
        id: The job's.
        target: Whose slots it holds.
        most: Slots that it may ever hold, at least 1; more than the target has are no use.
    """

    id: str
    target: str
    most: int


class Grant:
    """What a job may have in flight now; it changes while the job runs.

    Args:
        most: The most that the job may ever hold.
    """

    def __init__(self, most: int) -> None:
        self.slots = 1
        self._most = most
        self._heard: list[Callable[[int], None]] = []
        self._wanted: Callable[[], int] | None = None
        self._seen: deque[int] = deque(maxlen=LOOKS)

    def follow(self, heard: Callable[[int], None]) -> None:
        """Call a function with the number of slots, now and whenever it changes."""
        self._heard.append(heard)
        heard(self.slots)

    def demand(self, wanted: Callable[[], int]) -> None:
        """Say how to ask what the job could use now (requests in flight and waiting).

        Without it the job wants all that it may hold.
        """
        self._wanted = wanted

    def look(self) -> Claim:
        """What the job could use now."""
        self._seen.append(self._most if self._wanted is None else self._wanted())
        return Claim(max(self._seen), self._most)

    def set(self, slots: int) -> None:
        """Change it."""
        if slots != self.slots:
            self.slots = slots
            for heard in self._heard:
                heard(slots)


async def schedule(
    work: Sequence[Work],
    capacity: Mapping[str, int],
    parallel: int,
    start: Callable[[Work, Grant], Awaitable[None]],
    stop: Stop,
) -> None:
    """Run jobs until all have ended, or those that had begun when the run was to stop.

    What one job raises stops no other; the first of it is raised again at the end.

    Args:
        work: The jobs, in order; their ids are their own.
        capacity: Slots by target.
        parallel: Jobs active at once, at most.
        start: Runs a job to its end.
        stop: The run's.
    """
    waiting = list(work)
    active: dict[asyncio.Task[None], tuple[Work, Grant]] = {}
    failed: list[BaseException] = []
    stopping = asyncio.create_task(stop.wait())
    try:
        while active or (waiting and not stop.asked):
            if not stop.asked:
                for job in begin(waiting, [each for each, _ in active.values()], capacity, parallel):
                    waiting.remove(job)
                    grant = Grant(min(job.most, capacity[job.target]))
                    active[asyncio.create_task(_run(start, job, grant), name=job.id)] = (job, grant)
            divide(list(active.values()), capacity)
            for_end = {*active} if stop.asked else {*active, stopping}
            done, _ = await asyncio.wait(for_end, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in active if task in done]:
                del active[task]
                error = task.exception()
                if error is not None:
                    failed.append(error)
    finally:
        stopping.cancel()
        # Only when this very call is cancelled are there any left.
        for task in active:
            task.cancel()
        await asyncio.gather(*active, return_exceptions=True)
    if failed:
        raise failed[0]


def begin(
    waiting: Sequence[Work], active: Sequence[Work], capacity: Mapping[str, int], parallel: int
) -> list[Work]:
    """The jobs that begin now, in order.

    Args:
        waiting: Jobs that have not begun, in order.
        active: Jobs that have begun and not ended.
        capacity: Slots by target.
        parallel: Jobs active at once, at most.
    """
    chosen: list[Work] = []
    held = dict.fromkeys(capacity, 0)
    for job in active:
        held[job.target] += 1
    for job in waiting:
        if len(active) + len(chosen) < parallel and held[job.target] < capacity[job.target]:
            held[job.target] += 1
            chosen.append(job)
    return chosen


def divide(active: Sequence[tuple[Work, Grant]], capacity: Mapping[str, int]) -> None:
    """Divide every target's slots among its active jobs anew.

    Whoever gets fewer is told before anyone gets more, so that the sum is never above the target's slots.
    """
    shares = []
    for target, slots in capacity.items():
        grants = {job.id: grant for job, grant in active if job.target == target}
        found = share(slots, {name: grant.look() for name, grant in grants.items()})
        shares += [(grant, found[name]) for name, grant in grants.items()]
    for grant, slots in sorted(shares, key=lambda item: item[1] - item[0].slots):
        grant.set(slots)


async def _run(start: Callable[[Work, Grant], Awaitable[None]], job: Work, grant: Grant) -> None:
    await start(job, grant)
