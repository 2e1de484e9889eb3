"""Conducting one job: who answers, the lane, the child, who answered, what its records say.

Whatever happens to a job is told in its state, and stops no other job: a backend that raises, a child that
dies, a target that has become another one. The rows of a job that was stopped are not judged here; they are
read when the run is recorded.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from assay import gateway
from assay.backends.base import Context, Reached
from assay.coordinator import frozen
from assay.coordinator.child import launcher
from assay.coordinator.directory import aside, attempt_folder, journal, launch_folder
from assay.coordinator.events import SET_ASIDE
from assay.coordinator.live import Live, Running
from assay.coordinator.progress import Line
from assay.coordinator.records import judge, most_slots
from assay.coordinator.scheduler import Grant
from assay.coordinator.state import NativeEnd, Spent
from assay.coordinator.stop import Stop
from assay.errors import AssayError, RunError
from assay.gateway import Gateway, OpenLane, Pool
from assay.run.state import now
from assay.suite.job import Job
from assay.suite.target import Target

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Around:
    """What stands around the jobs of a run.

    Attributes:
        live: The run.
        gateway: Through which they ask; None where no target is asked.
        pools: The endpoints of each target, by its name.
        line: The display's line of each job, by its id.
    """

    live: Live
    gateway: Gateway | None
    pools: Mapping[str, Pool]
    line: Callable[[str], Line]


async def conduct_job(around: Around, job: Job, grant: Grant) -> None:
    """Carry out one attempt of a job, to whatever end, and write what became of it."""
    live = around.live
    target = live.suite.target(job)
    line = around.line(job.id)
    attempt = live.state.job(job.id).attempt + 1
    live.job(
        job.id,
        phase="running",
        verdict=None,
        attempt=attempt,
        started_at=live.state.job(job.id).started_at or now(),
        ended_at=None,
        ended=None,
        done=0,
        problems=(),
        notes=(),
        error=None,
    )
    live.tell("job-started", {"job": job.id, "attempt": attempt, "slots": grant.slots})
    stop = Stop(live.stop)
    became: dict[str, object] = {}
    try:
        became = await _attempt(around, job, target, attempt, grant, stop, line)
    except (AssayError, OSError) as error:
        if not live.failed_to_write(error):
            became = _failed(live.secrets.text(str(error)))
    except Exception as error:
        # A backend that trips over what it found must not take the other jobs with it.
        logger.exception("job %s failed", job.id)
        became = _failed(live.secrets.text(f"the backend failed: {type(error).__name__}: {error}"))
    finally:
        _finish(live, job, stop, became, line)


def _failed(error: str) -> dict[str, object]:
    return {"phase": "ended", "verdict": "failed", "error": error}


def _finish(live: Live, job: Job, stop: Stop, became: Mapping[str, object], line: Line) -> None:
    """Tell what became of an attempt, then write it: a state that says "ended" is taken for the end.

    Whoever is killed between the two has only told of an attempt that a resume makes again. Where the event
    could not be written, the job is paused instead.
    """
    phase = "paused" if stop.why == "disk" else "cancelled"
    changed = {"phase": phase, **became, "ended_at": now()}
    state = live.state.with_job(job.id, **changed).job(job.id)
    said = {name: getattr(state, name) for name in ("attempt", "phase", "verdict", "budget", "error")}
    live.tell("job-ended", {"job": job.id, **said, "spent": state.spent.model_dump()})
    if live.full is not None:
        changed |= {"phase": "paused", "verdict": None}
    live.job(job.id, **changed)
    line.end(state.verdict or state.phase)


async def _attempt(
    around: Around, job: Job, target: Target, attempt: int, grant: Grant, stop: Stop, line: Line
) -> dict[str, object]:
    """Carry out an attempt; what it came to is returned, and not yet in the job's state."""
    live, backend = around.live, around.live.backends[job.backend]

    def heard(reached: Reached) -> None:
        live.reached(job.id, reached.done, reached.total)
        line.reached(reached.done, reached.total)

    grant.follow(line.slots)
    if target.name in live.blocked:
        raise RunError(f"not begun: {live.blocked[target.name]}")
    line.phase("identify")
    changed, _ = await asyncio.to_thread(live.targets.look_again, target, job.id, attempt, "before")
    if changed:
        live.blocked[target.name] = changed[0]
        raise RunError(f"not begun: {'; '.join(changed)}")
    if stop.asked:
        return {}
    folder = live.run / attempt_folder(job.id, attempt)
    folder.mkdir(parents=True)
    scratch = live.scratch.folder(f"job-{job.id}")
    try:
        async with _lane(around, job, target, grant, stop) as lane:
            line.phase("ask")
            context = Context(
                job=job,
                target=target,
                suite_digest=live.suite.digest,
                folder=folder,
                run=live.run,
                launch=launch_folder(live.run, job.id),
                scratch=scratch,
                attempt=attempt,
                slots=most_slots(job, target),
                lane=lane.lane if lane else None,
                data={name: live.data[name] for name in backend.data(job)},
                start=launcher(
                    job=job.id,
                    log=lambda text: live.log.line(job.id, text),
                    secrets=live.secrets,
                    stop=stop,
                    heard=heard,
                    record=lambda command: live.launched(job.id, attempt, command),
                    memory_gib=live.suite.running.memory_gib,
                ),
            )
            context.launch.mkdir(parents=True, exist_ok=True)
            async with _running(live, job, lane), _bounds(live, job, lane, stop):
                ended = await backend.run(context)
            left = lane.unclaimed if lane is not None and not stop.asked else 0
        live.job(job.id, ended=NativeEnd(**asdict(ended)))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    line.phase("check")
    if stop.why in ("cancelled", "disk"):
        if stop.why == "cancelled" and not stop.urgent:
            # A resume will use what was answered: it must be of the target that the run began with.
            problems, another = await _identify_again(live, job, target, attempt)
            if another:
                return {"problems": tuple(live.secrets.text(problem) for problem in problems)}
        return {}
    problems, _ = await _identify_again(live, job, target, attempt)
    problems += await _freeze_again(live, job, attempt)
    line.phase("read")
    judged = await asyncio.to_thread(judge, backend, context, ended)
    problems += judged.problems
    notes = [*judged.notes, *_unclaimed(left)]
    return {
        "phase": "ended",
        "verdict": "failed" if problems else judged.verdict,
        "done": judged.done,
        "problems": tuple(live.secrets.text(problem) for problem in problems),
        "notes": tuple(live.secrets.text(note) for note in notes),
    }


def _unclaimed(left: int) -> list[str]:
    """What a reader must know where an evaluator did not ask again what it had asked before it was ended."""
    if not left:
        return []
    return [
        f"{left} answer(s) of earlier attempts were not asked for again: the evaluator words its requests "
        "otherwise each time, so an undisturbed run may have found something else"
    ]


@asynccontextmanager
async def _lane(
    around: Around, job: Job, target: Target, grant: Grant, stop: Stop
) -> AsyncIterator[OpenLane | None]:
    """The job's lane while its child runs; None where nobody is asked."""
    if target.protocol == "none" or around.gateway is None:
        yield None
        return
    live = around.live
    path = journal(live.run, job.id)
    path.parent.mkdir(exist_ok=True)
    spent = gateway.Spent(**live.state.job(job.id).spent.model_dump())
    lane = around.gateway.open(job.id, around.pools[target.name], path, job.budget, spent)
    live.secrets.add(lane.lane.key)
    live.lanes.add(lane.lane.key.reveal())
    try:
        grant.follow(lambda slots: setattr(lane, "limit", slots))
        grant.demand(lambda: lane.in_flight + lane.waiting)
        yield lane
    finally:
        await lane.close()


@asynccontextmanager
async def _bounds(live: Live, job: Job, lane: OpenLane | None, stop: Stop) -> AsyncIterator[None]:
    """The job's budget, while its child runs: what is beyond it is not asked, and missing."""

    def reached(which: str) -> None:
        live.job(job.id, budget=which)
        live.tell("budget-reached", {"job": job.id, "budget": which})
        stop.ask("budget")

    async def tokens(spent: asyncio.Event) -> None:
        await spent.wait()
        reached("tokens")

    async def clock(left: float) -> None:
        await asyncio.sleep(left)
        reached("wall_seconds")

    watching = []
    if lane is not None and job.budget.tokens is not None:
        watching.append(asyncio.create_task(tokens(lane.exhausted)))
    if job.budget.wall_seconds is not None:
        left = job.budget.wall_seconds - live.state.job(job.id).seconds
        watching.append(asyncio.create_task(clock(max(left, 0.0))))
    try:
        yield
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


@asynccontextmanager
async def _running(live: Live, job: Job, lane: OpenLane | None) -> AsyncIterator[None]:
    """Keep in the state what the job takes, while its child runs."""
    before = live.state.job(job.id)

    def spent() -> Spent:
        return before.spent if lane is None else Spent(**asdict(lane.spent))

    live.running[job.id] = Running(time.monotonic(), before.seconds, spent)
    try:
        yield
    finally:
        live.save()
        del live.running[job.id]


async def _identify_again(live: Live, job: Job, target: Target, attempt: int) -> tuple[list[str], bool]:
    """What fails a job whose target is not what it was; answers of another target go aside.

    Returns:
        What fails the job, and whether the target answered as another one.
    """
    problems, another = await asyncio.to_thread(live.targets.look_again, target, job.id, attempt, "after")
    if problems:
        live.blocked[target.name] = problems[0]
    path = journal(live.run, job.id)
    if another and path.exists():
        # Nobody can say which of them are whose: a resume must not take them for the first target's.
        set_aside = aside(live.run, job.id, attempt)
        path.rename(set_aside)
        live.tell(SET_ASIDE, {"job": job.id, "file": set_aside.relative_to(live.run).as_posix()})
    return problems, another


async def _freeze_again(live: Live, job: Job, attempt: int) -> list[str]:
    """What fails a job whose inputs are not what they were."""
    try:
        after = await asyncio.to_thread(frozen.freeze, live.suite, live.backends, (job,))
        frozen.record(live.run, f"after-{job.id}.{attempt}", after)
        found = frozen.differences(live.frozen, after, (job.id,))
    except AssayError as error:
        return [f"a frozen input cannot be verified any more: {error}"]
    return [f"a frozen input changed during the run: {what}" for what in found]
