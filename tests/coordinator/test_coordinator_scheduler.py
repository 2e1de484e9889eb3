"""The scheduler: order, both bounds, slots that move while jobs run, and no beginning after a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.coordinator import scheduler
from assay.coordinator.scheduler import Grant, Work, schedule
from assay.coordinator.stop import Stop

TARGETS = ("left", "right", "third")


class Floor:
    """Where jobs run: what is active, and the most that ever was."""

    def __init__(self, capacity: dict[str, int], parallel: int) -> None:
        self.capacity = capacity
        self.parallel = parallel
        self.began: list[str] = []
        self.ended: list[str] = []
        self.grants: dict[str, tuple[Work, Grant]] = {}
        self.release: dict[str, asyncio.Event] = {}

    async def start(self, work: Work, grant: Grant) -> None:
        self.began.append(work.id)
        self.grants[work.id] = (work, grant)
        grant.follow(lambda slots: self.check())
        gate = self.release.setdefault(work.id, asyncio.Event())
        try:
            await gate.wait()
        finally:
            del self.grants[work.id]
            self.ended.append(work.id)

    def check(self) -> None:
        """What must hold at every moment, also in the middle of a change."""
        assert len(self.grants) <= self.parallel
        for target, slots in self.capacity.items():
            held = [grant.slots for work, grant in self.grants.values() if work.target == target]
            assert sum(held) <= slots
            assert all(each >= 1 for each in held)


async def settle() -> None:
    """Let everything that can happen now happen."""
    for _ in range(20):
        await asyncio.sleep(0)


@st.composite
def suites(draw: st.DrawFn) -> tuple[list[Work], dict[str, int], int, list[int]]:
    capacity = {target: draw(st.integers(1, 6)) for target in TARGETS}
    works = draw(st.lists(st.tuples(st.sampled_from(TARGETS), st.integers(1, 8)), min_size=1, max_size=10))
    jobs = [Work(f"job-{number}", target, most) for number, (target, most) in enumerate(works)]
    order = draw(st.lists(st.integers(0, 20), min_size=len(jobs), max_size=len(jobs)))
    return jobs, capacity, draw(st.integers(1, 4)), order


@given(suites())
def test_all_jobs_run_once_within_both_bounds_whatever_order_they_end_in(
    suite: tuple[list[Work], dict[str, int], int, list[int]],
) -> None:
    jobs, capacity, parallel, order = suite
    floor = Floor(capacity, parallel)

    async def run() -> None:
        task = asyncio.create_task(schedule(jobs, capacity, parallel, floor.start, Stop()))
        for choice in order:
            await settle()
            running = sorted(floor.grants)
            assert running, "something can always run"
            assert_full(jobs, floor)
            floor.release[running[choice % len(running)]].set()
        await task

    asyncio.run(run())
    assert sorted(floor.ended) == sorted(job.id for job in jobs) == sorted(floor.began)
    for target in TARGETS:
        mine = [job.id for job in jobs if job.target == target]
        assert [name for name in floor.began if name in mine] == mine, "in the order of the suite"


def assert_full(jobs: Sequence[Work], floor: Floor) -> None:
    """No job waits that could run, and no slot is idle that a running job may hold."""
    for job in jobs:
        if job.id not in floor.began:
            active = [work for work, _ in floor.grants.values() if work.target == job.target]
            assert len(floor.grants) == floor.parallel or len(active) == floor.capacity[job.target]
    for target, slots in floor.capacity.items():
        mine = [(work, grant) for work, grant in floor.grants.values() if work.target == target]
        most = sum(min(work.most, slots) for work, _ in mine)
        assert sum(grant.slots for _, grant in mine) == min(slots, most)


def test_a_job_is_topped_up_when_another_ends() -> None:
    floor = Floor({"left": 5}, 2)
    jobs = [Work("a", "left", 5), Work("b", "left", 5), Work("c", "left", 1)]
    seen: list[dict[str, int]] = []

    async def run() -> None:
        task = asyncio.create_task(schedule(jobs, floor.capacity, 2, floor.start, Stop()))
        for name in ("b", "c", "a"):
            await settle()
            seen.append({job: grant.slots for job, (_, grant) in floor.grants.items()})
            floor.release[name].set()
        await task

    asyncio.run(run())
    assert seen == [{"a": 3, "b": 2}, {"a": 4, "c": 1}, {"a": 5}]


def test_what_a_job_does_not_use_is_lent_and_comes_back_when_it_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "LOOK_S", 0.001)
    floor = Floor({"left": 4}, 2)
    wants = {"idle": 1, "busy": 9}
    reached: list[str] = []

    async def until(what: str, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)
        reached.append(what)

    async def start(work: Work, grant: Grant) -> None:
        grant.demand(lambda: wants[work.id])
        await floor.start(work, grant)

    async def run() -> None:
        jobs = [Work("idle", "left", 4), Work("busy", "left", 4)]
        task = asyncio.create_task(schedule(jobs, floor.capacity, 2, start, Stop()))
        await settle()
        idle, busy = (floor.grants[name][1] for name in ("idle", "busy"))
        await until("lent", lambda: (idle.slots, busy.slots) == (1, 3))
        wants["idle"] = 4
        await until("back", lambda: (idle.slots, busy.slots) == (2, 2))
        for gate in floor.release.values():
            gate.set()
        await task

    asyncio.run(asyncio.wait_for(run(), 60))
    assert reached == ["lent", "back"]


def test_queued_jobs_do_not_begin_after_a_stop_and_running_ones_are_waited_for() -> None:
    floor = Floor({"left": 1}, 4)
    jobs = [Work("first", "left", 1), Work("second", "left", 1)]

    async def run() -> None:
        stop = Stop()
        task = asyncio.create_task(schedule(jobs, floor.capacity, 4, floor.start, stop))
        await settle()
        stop.ask("cancelled")
        await settle()
        assert not task.done()
        floor.release["first"].set()
        await task

    asyncio.run(run())
    assert floor.began == floor.ended == ["first"]


def test_nothing_begins_in_a_run_that_was_stopped_before() -> None:
    floor = Floor({"left": 1}, 1)

    async def run() -> None:
        stop = Stop()
        stop.ask("disk")
        await schedule([Work("first", "left", 1)], floor.capacity, 1, floor.start, stop)

    asyncio.run(run())
    assert floor.began == []


def test_a_job_that_fails_stops_no_other_and_is_told_at_the_end() -> None:
    ended = []

    async def start(work: Work, grant: Grant) -> None:
        if work.id == "bad":
            raise RuntimeError("bad job")
        await settle()
        ended.append(work.id)

    jobs = [Work("bad", "left", 1), Work("good", "left", 1), Work("late", "left", 1)]
    with pytest.raises(RuntimeError, match="bad job"):
        asyncio.run(schedule(jobs, {"left": 2}, 2, start, Stop()))
    assert sorted(ended) == ["good", "late"]
