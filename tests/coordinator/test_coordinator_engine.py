"""Scheduler, gateway and children together: slots as the server sees them, and nothing is asked twice."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.backends.registry import find
from assay.coordinator import scheduler
from assay.coordinator.child import launcher
from assay.coordinator.redact import Secrets
from assay.coordinator.scheduler import Grant, Work, schedule
from assay.coordinator.stop import Stop
from assay.gateway import Gateway, Pool
from assay.record.sample import Sample
from assay.run.endpoint import Endpoint
from assay.run.key import Key
from assay.suite.job import Job
from assay.suite.target import Target
from coordinator.jobs import context_of, mock_job
from gateway.scripted_target import Asked, Reply, Upstream, completion


class Engine:
    """Mock jobs that ask one target, run by the scheduler, each down its lane."""

    def __init__(self, run: Path, base_url: str, slots: int) -> None:
        self.run = run
        self.target = Target(name="asked", base_url=(base_url,), model="m", max_concurrency=slots)
        self.pool = Pool(self.target, [Endpoint(base_url, "m", Key("the-target-s-own"))])
        self.rows: dict[str, list[Sample]] = {}
        self.ended: list[str] = []
        (run / "answers").mkdir()

    def carry_out(self, jobs: Mapping[str, Job], parallel: int, attempt: int = 1) -> None:
        asyncio.run(asyncio.wait_for(self._all(jobs, parallel, attempt), 120))

    async def _all(self, jobs: Mapping[str, Job], parallel: int, attempt: int) -> None:
        work = [Work(job.id, "asked", job.max_concurrency or 1024) for job in jobs.values()]
        async with Gateway(lambda kind, fields: None) as gateway:
            start = self._start(gateway, jobs, attempt)
            capacity = {"asked": self.target.max_concurrency}
            await schedule(work, capacity, parallel, start, Stop())

    def _start(
        self, gateway: Gateway, jobs: Mapping[str, Job], attempt: int
    ) -> Callable[[Work, Grant], Awaitable[None]]:
        async def start(work: Work, grant: Grant) -> None:
            job = jobs[work.id]
            lane = gateway.open(job.id, self.pool, self.run / "answers" / f"{job.id}.jsonl")
            grant.follow(lambda slots: setattr(lane, "limit", slots))
            grant.demand(lambda: lane.in_flight + lane.waiting)
            child = launcher(
                job=job.id,
                log=lambda line: None,
                secrets=Secrets(),
                stop=Stop(),
                heard=lambda reached: None,
                record=lambda command: None,
            )
            run = self.run / f"attempt-{attempt}"
            context = context_of(run, job, child, target=self.target, lane=lane.lane, slots=8)
            context.folder.mkdir(parents=True)
            ended = await find("mock").run(context)
            await lane.close()
            self.rows[job.id] = list(find("mock").normalize(context, ended).rows)
            self.ended.append(job.id)

        return start


def asking(name: str, items: int, seed: int, **fields: Any) -> Job:
    return mock_job(
        id=name,
        target="asked",
        backend_args={"items": items, "ask": True},
        generation={"temperature": 1.0, "seed": seed},
        **fields,
    )


def seed_of(asked: Asked) -> int:
    return int(asked.json["seed"])


def test_the_target_s_slots_are_all_used_and_never_exceeded_and_a_job_is_topped_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "LOOK_S", 0.02)
    jobs = {"long": asking("long", 9, 100), "short": asking("short", 5, 200)}
    release = {100: threading.Event(), 200: threading.Event()}
    seen: list[Counter[int]] = []

    def script(asked: Asked) -> Reply:
        return Reply(body=completion("an answer"), held=release[seed_of(asked)])

    with Upstream(script) as server:
        engine = Engine(tmp_path, server.base_url, 4)
        running = threading.Thread(target=engine.carry_out, args=(jobs, 2))
        running.start()
        server.wait_for(lambda: server.in_flight == 4 and {100, 200} == set(map(seed_of, server.asked)))
        seen.append(Counter(map(seed_of, server.asked)))
        release[200].set()
        # The short job ends, and the long one, none of whose requests is answered yet, gets all four.
        server.wait_for(lambda: Counter(map(seed_of, server.asked))[100] == 4 and server.in_flight == 4)
        release[100].set()
        running.join(60)

    assert engine.ended == ["short", "long"]
    assert seen[0].total() == 4
    assert server.most_in_flight == 4
    assert Counter(map(seed_of, server.asked)) == {100: 9, 200: 5}
    assert [row.status for row in engine.rows["long"]] == ["scored"] * 9
    assert [row.task_key for row in engine.rows["short"]] == list("01234")


def test_a_job_s_own_bound_holds_at_the_server(tmp_path: Path) -> None:
    at_once = threading.Barrier(2, timeout=60)

    def script(asked: Asked) -> Reply:
        at_once.wait()  # two come together, or none is answered
        return Reply(body=completion("an answer"))

    with Upstream(script) as server:
        engine = Engine(tmp_path, server.base_url, 8)
        engine.carry_out({"few": asking("few", 12, 1, max_concurrency=2)}, 1)
    assert server.most_in_flight == 2
    assert len(server.asked) == 12


def test_a_child_that_is_started_again_asks_nothing_that_was_answered(tmp_path: Path) -> None:
    jobs = {name: asking(name, 6, seed, repeats=2) for name, seed in (("a", 10), ("b", 20))}
    with Upstream(lambda asked: Reply(body=completion(f"answer {asked.number}"))) as server:
        engine = Engine(tmp_path, server.base_url, 4)
        engine.carry_out(jobs, 2)
        first, asked = dict(engine.rows), len(server.asked)
        engine.carry_out(jobs, 2, attempt=2)
    assert asked == len(server.asked) == 24
    for name, rows in first.items():
        digests = {(row.task_key, row.rollout): row.answer_digest for row in rows}
        assert {(row.task_key, row.rollout): row.answer_digest for row in engine.rows[name]} == digests
        assert len(set(digests.values())) == 12
