"""Conducting a suite: freeze, serve, ask, check again, record; whatever happens, the record tells the truth.

The order is that of a profile's run (`assay.run.conduct`): inputs are hashed and every target identified
before the first request, and a job's own again when it has ended. What is different is that jobs run beside
each other, ask through the gateway, which keeps every answer, and can be taken up again after any end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from assay import data
from assay.backends import registry
from assay.backends.base import Backend
from assay.console import say
from assay.coordinator import frozen
from assay.coordinator.job import Around, conduct_job
from assay.coordinator.live import Live
from assay.coordinator.lock import RunLock
from assay.coordinator.progress import Display
from assay.coordinator.records import most_slots
from assay.coordinator.results import write
from assay.coordinator.scheduler import Grant, Work, schedule
from assay.coordinator.state import BudgetName, JobState, Phase, State, save_state
from assay.digest import sha256_bytes
from assay.errors import AssayError, CancelledError, RunError
from assay.files import write_atomic, write_json_atomic
from assay.gateway import Gateway, Pool
from assay.paths import OWNED, owned_directory
from assay.plan import NAME as RESOLVED
from assay.record.manifest import write_manifest
from assay.record.suite_summary import SuiteSummary
from assay.run import provenance
from assay.run.conduct import forget_the_dead, private_folder
from assay.run.directory import new_directory
from assay.run.native import Scratch
from assay.run.state import now
from assay.run.watch import SIGNALS
from assay.run.worktree import look
from assay.signing.key import SigningKey
from assay.signing.sign import sign_run
from assay.suite.read import Asked
from assay.suite.suite import Suite

SOURCE = "source.json"
TEXT = "suite.toml"
LOOK_S = 1.0


@dataclass(frozen=True)
class Finished:
    """A run that has been recorded."""

    run: Path
    summary: SuiteSummary


Check = Callable[[Live, frozen.Frozen], None]
"""Refuses to go on, before anything is written into the run: what a resume compares."""


def conduct(asked: Asked, reference: str, runs: Path, signer: SigningKey | None = None) -> Finished:
    """Carry out a suite from its beginning and record it.

    Args:
        asked: The suite, as it was read; it has been checked.
        reference: How it was named; a resume reads it again by this name.
        runs: Where the run's directory is made.
        signer: Who vouches for the record; None for nobody.

    Raises:
        AssayError: nothing could be asked at all, or the disk is full; the run's directory then holds why.
    """
    suite = asked.suite
    run = new_directory(suite.name, suite.digest, runs)
    with RunLock(run):
        jobs = tuple(JobState(id=job.id) for job in suite.jobs)
        state = State(suite=suite.name, phase="starting", started_at=now(), jobs=jobs)
        write_json_atomic(run / RESOLVED, suite.model_dump(mode="json"))
        folder = provenance.folder(run)
        if asked.path is not None:
            write_atomic(folder / TEXT, asked.text.encode("utf-8"))
        source = {"reference": reference, "text_sha256": sha256_bytes(asked.text.encode("utf-8"))}
        write_json_atomic(folder / SOURCE, source)
        # Before anything runs: what is looked at afterwards may be what the run itself has changed.
        provenance.record_worktree(run, look())
        # Last: a directory with a state is a run that can be taken up again.
        save_state(run, state)
        say(f"assay: run directory: {run}")
        return carry_out(run, suite, state, _fresh, signer)


def _fresh(live: Live, found: frozen.Frozen) -> None:
    """Nothing is compared where nothing has been asked."""


def carry_out(
    run: Path, suite: Suite, state: State, check: Check, signer: SigningKey | None = None
) -> Finished:
    """Carry out what is left of a run whose directory is locked, and record it.

    Args:
        run: The run directory.
        suite: What it asks.
        state: Where it stands.
        check: Compares what was frozen with what is there now; raises to refuse.
        signer: Who vouches for the record; None for nobody.
    """
    private = owned_directory(OWNED / "private", mode=0o700)
    forget_the_dead(private)
    backends = {name: registry.find(name) for name in sorted({job.backend for job in suite.jobs})}
    scratch = private_folder(private, run.name)
    try:
        finished = asyncio.run(_carry_out(run, suite, state, check, backends, scratch))
    finally:
        scratch.remove()
    # What is recorded stays so, also where it cannot be signed.
    sign_run(run, signer)
    return finished


async def _carry_out(
    run: Path, suite: Suite, state: State, check: Check, backends: Mapping[str, Backend], scratch: Scratch
) -> Finished:
    expected = {job.id: backends[job.backend].plan(job, suite.target(job)) for job in suite.jobs}
    live = Live(run, suite, backends, expected, state, scratch, asyncio.get_running_loop())
    with _signals(live), ThreadPoolExecutor(1, "servers") as servers:
        try:
            await _prepare(live, servers, check)
            live.open()
            try:
                await _ask(live)
            finally:
                await live.loop.run_in_executor(servers, live.targets.end)
            return await _record(live)
        except (AssayError, OSError) as error:
            live.failed_to_write(error)
            _told(live, error)
            raise
        finally:
            await live.loop.run_in_executor(servers, live.targets.end)
            live.close()


def _told(live: Live, error: Exception) -> None:
    """Write why the run ended without results; a resume that was refused has changed nothing."""
    if live.state.phase not in ("starting", "running", "recording"):
        return
    code = error.exit_code if isinstance(error, AssayError) else RunError.exit_code
    phase: Phase = "cancelled" if isinstance(error, CancelledError) else "failed"
    # On a full disk even this cannot be written: then `assay status` sees that the writer is gone.
    with contextlib.suppress(AssayError, OSError):
        said = live.secrets.text(str(error))
        live.save("paused" if live.full else phase, error=said, error_exit_code=code, ended_at=now())


@contextlib.contextmanager
def _signals(live: Live) -> Iterator[None]:
    """Let signals ask the run to end: once politely, twice at once."""

    def asked() -> None:
        if not live.stop.asked:
            say("assay: stopping; what has finished is kept (again to stop at once)")
        live.stop.ask("cancelled")

    for number in SIGNALS:
        live.loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in SIGNALS:
            live.loop.remove_signal_handler(number)


async def _prepare(live: Live, servers: ThreadPoolExecutor, check: Check) -> None:
    """Hash the inputs, start and identify the targets, and compare where something was asked before."""
    number = live.state.resumed + 1
    started = live.loop.run_in_executor(servers, live.targets.start, number, lambda: live.stop.asked)
    try:
        hashed = asyncio.to_thread(frozen.freeze, live.suite, live.backends)
        found, _ = await asyncio.gather(hashed, started)
        if live.stop.asked:
            raise CancelledError("cancelled before anything was asked")
        await asyncio.to_thread(check, live, found)
    except BaseException:
        # What a refused resume began must leave no trace in the run.
        await asyncio.wait([started])
        if live.state.phase != "starting":
            live.targets.forget_logs()
        raise
    live.frozen = found
    for job in live.suite.jobs:
        for name in live.backends[job.backend].data(job):
            live.data[name] = data.find(name).path
    if begun(live.state):
        frozen.record(live.run, f"resume-{live.state.resumed}", found)
    else:
        frozen.record(live.run, frozen.BEFORE, found)
        live.targets.record_first()
        await asyncio.to_thread(provenance.record_machine, live.run)


def begun(state: State) -> bool:
    """Whether anything was asked yet."""
    return any(job.attempt for job in state.jobs)


async def _ask(live: Live) -> None:
    suite, state = live.suite, live.state
    left = [job for job in suite.jobs if not state.job(job.id).settled]
    live.save("running", ended_at=None, error=None, error_exit_code=None, problems=())
    kind = "run-resumed" if state.resumed else "run-started"
    live.tell(kind, {"suite": suite.name, "digest": suite.digest, "jobs": [job.id for job in left]})
    capacity = {target.name: target.max_concurrency for target in suite.targets}
    work = [Work(job.id, job.target, most_slots(job, suite.target(job))) for job in left]
    by_id = {job.id: job for job in left}
    async with AsyncExitStack() as stack:
        display = await stack.enter_async_context(Display(suite.running.heartbeat_seconds))
        gateway = await stack.enter_async_context(Gateway(live.tell)) if live.targets.reached else None
        pools = {
            name: Pool(suite_target, live.targets.reached[name].endpoints)
            for name, suite_target in ((target.name, target) for target in suite.targets)
            if name in live.targets.reached
        }
        around = Around(live, gateway, pools, lambda name: display.job(name, live.expected[name].total))
        ticking = asyncio.create_task(_tick(live))
        stack.push_async_callback(_ended, ticking)

        async def begin(each: Work, grant: Grant) -> None:
            await conduct_job(around, by_id[each.id], grant)

        _see_to_budget(live)
        await schedule(work, capacity, suite.running.max_parallel_jobs, begin, live.stop)


async def _tick(live: Live) -> None:
    """Write the state from time to time, also when nothing is heard, and see to the run's own budget."""
    while True:
        await asyncio.sleep(LOOK_S)
        live.save()
        _see_to_budget(live)


def _see_to_budget(live: Live) -> None:
    """End the run when it has used what it may; what is then not asked is missing."""
    budget = live.suite.running.budget
    spent = budget.tokens is not None and live.tokens >= budget.tokens
    late = budget.wall_seconds is not None and live.seconds >= budget.wall_seconds
    if not (spent or late) or live.stop.asked:
        return
    which: BudgetName = "tokens" if spent else "wall_seconds"
    for job in live.suite.jobs:
        if not live.state.job(job.id).settled:
            live.job(job.id, budget=which)
    live.tell("budget-reached", {"budget": which})
    live.stop.ask("budget")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _record(live: Live) -> Finished:
    """Derive the results from what lies on the disk, and write the manifest last."""
    if live.full is not None or live.stop.why == "disk":
        raise RunError(
            "the run is paused: the disk is full",
            f"{live.full or ''}; what had been answered is kept",
            f"free some space, then: assay resume {live.run}",
        )
    live.save("recording")
    summary = await asyncio.to_thread(write, live)
    live.tell("run-ended", {"status": summary.status, "seconds": round(live.seconds, 3)})
    live.close()
    live.save(summary.status, ended_at=now(), problems=tuple(summary.problems))
    await asyncio.to_thread(write_manifest, live.run)
    return Finished(live.run, summary)
