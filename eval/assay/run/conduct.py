"""Conducting a run: freeze, serve, ask, check again, record; whatever happens, the record tells the truth.

The order matters. Inputs are hashed and the server identified before the first request and after each entry;
a difference fails the run. Samples and summary are derived from what lies on the disk when the evaluator has
ended, however it ended; the manifest is written last, and then signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from assay import models, sandbox
from assay.console import say
from assay.coordinator.lock import RunLock
from assay.coordinator.scheduler import Grant, Work, schedule
from assay.coordinator.stop import Stop
from assay.errors import AssayError, CancelledError, RunError
from assay.evaluator import Evaluator, load_evaluator
from assay.files import write_json_atomic
from assay.paths import OWNED, owned_directory
from assay.plan import OwnServer, Plan
from assay.profile import merge
from assay.record.manifest import write_manifest
from assay.record.results import derive, left_out, summarise, write_results
from assay.record.summary import Summary
from assay.run import containers, native, provenance, route
from assay.run.declared import Declared
from assay.run.directory import create
from assay.run.endpoint import Endpoint, probe
from assay.run.entry import Around, conduct_entry
from assay.run.freeze import freeze
from assay.run.key import Key
from assay.run.native import Scratch
from assay.run.progress import Progress
from assay.run.server_check import leaks
from assay.run.serving import serve
from assay.run.state import Owner, Phase, now, this_process
from assay.run.tasks import list_tasks
from assay.run.watch import Cancellation, cancellation
from assay.run.worktree import look
from assay.signing.key import SigningKey
from assay.signing.sign import sign_run

CLEANUP_GRACE_S = 30.0
OWNER = "owner.json"


@dataclass(frozen=True)
class Finished:
    """A run that has been recorded."""

    run: Path
    summary: Summary


def conduct(
    plan: Plan,
    key: Key | None,
    runs: Path,
    declared: Declared | None = None,
    signer: SigningKey | None = None,
) -> Finished:
    """Carry out a plan and record it.

    Args:
        plan: What to do; its set-up has been checked.
        key: The endpoint's key, when the server is not the run's own.
        runs: Where the run's directory is made.
        declared: What the operator says of the server.
        signer: Who vouches for the record; None for nobody.

    Raises:
        AssayError: nothing could be asked at all; the run's directory then holds why.
    """
    with cancellation() as asked:
        private = owned_directory(OWNED / "private", mode=0o700)
        forget_the_dead(private)
        if plan.runtime == "docker" and (left := containers.sweep_ended(runs)):
            say(f"assay: {left} container(s) that earlier runs left behind are removed")
        progress = create(plan, runs)
        progress.declared = declared or progress.declared
        with RunLock(progress.run), progress.telling():
            say(f"assay: run directory: {progress.run}")
            finished = _conduct(progress, key, private, asked)
            # What is recorded stays so, also where it cannot be signed.
            sign_run(finished.run, signer)
            return finished


def _conduct(progress: Progress, key: Key | None, private: Path, asked: Cancellation) -> Finished:
    begin = time.monotonic()
    progress.tell("run-started", {"profile": progress.plan.profile, "digest": progress.plan.digest})
    try:
        scratch = private_folder(private, progress.run.name)
        try:
            _ask(progress, key, scratch, asked)
        finally:
            scratch.remove()
        progress.seconds["wall"] = round(time.monotonic() - begin, 3)
        return _record(progress, asked)
    except (AssayError, OSError) as error:
        # On a full disk even this cannot be written: then `assay status` sees that the writer is gone.
        with contextlib.suppress(AssayError, OSError):
            phase: Phase = "cancelled" if isinstance(error, CancelledError) else "failed"
            progress.save(phase, str(error), getattr(error, "exit_code", RunError.exit_code))
            progress.tell("run-ended", {"status": phase, "error": str(error)})
        raise


def private_folder(private: Path, name: str) -> Scratch:
    """A private folder for a run, and for no other: one of its name may be live in another place.

    Args:
        private: Where such folders are made.
        name: The run directory's.
    """
    for number in itertools.count(1):
        path = private / (name if number == 1 else f"{name}.{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        break
    write_json_atomic(path / OWNER, this_process().model_dump(mode="json"))
    return Scratch(path)


def forget_the_dead(private: Path) -> None:
    """Remove the private folders of runs that were killed and could not do it themselves."""
    for path in private.iterdir():
        try:
            owner = Owner.model_validate_json((path / OWNER).read_bytes())
        except (OSError, ValueError):
            continue
        if not owner.alive:
            Scratch(path).remove()


def _ask(progress: Progress, key: Key | None, scratch: Scratch, asked: Cancellation) -> None:
    plan = progress.plan
    evaluator = load_evaluator(plan.evaluator)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(4))
        unwanted = threading.Event()
        stack.callback(unwanted.set)
        # Hashing, describing, preparing the host and starting the server wait for different things, so they
        # go on beside each other; all of it is done before the first request. What reads pinned data waits
        # for their digests.
        frozen = pool.submit(_freeze, progress, evaluator)
        described = pool.submit(
            _describe, progress, scratch, key, lambda: asked.asked or unwanted.is_set(), frozen
        )
        hosted = pool.submit(_host, progress, scratch)
        with progress.timed("server"):
            endpoint = _endpoint(progress, key, scratch, stack, asked)
        with progress.timed("freeze"):
            before = frozen.result()
        with progress.timed("describe"):
            described.result()
            extra = hosted.result()
        # Intervals are computed when the evaluator has ended; what they need loads while it runs.
        pool.submit(importlib.import_module, "scipy.stats")
        progress.save("running")
        asyncio.run(_entries(Around(progress, evaluator, endpoint, scratch, extra, before, asked)))
        with progress.timed("server"):
            stack.close()


async def _entries(around: Around) -> None:
    """Run the entries one after the other, as a suite's jobs that share one target.

    Nothing else is in the loop, so an entry may block it.
    """
    progress, stop = around.progress, Stop()
    entries = {entry.name: entry for entry in progress.plan.entries}

    async def begin(work: Work, grant: Grant) -> None:
        if not around.asked.asked and not progress.problems:
            conduct_entry(around, entries[work.id])
        if around.asked.asked or progress.problems:
            stop.ask("cancelled")

    most = max(entry.max_concurrent for entry in entries.values())
    work = [Work(entry.name, progress.plan.server.model, entry.max_concurrent) for entry in entries.values()]
    await schedule(work, {progress.plan.server.model: most}, 1, begin, stop)


def _host(progress: Progress, scratch: Scratch) -> Mapping[str, str]:
    """What the evaluator's environment needs besides where rollouts run on the host."""
    if progress.plan.runtime != "subprocess":
        return {}
    return sandbox.prepare_host(scratch.folder("home"), progress.plan.evaluator)


def _freeze(progress: Progress, evaluator: Evaluator) -> dict[str, str]:
    before = freeze(progress.plan, evaluator)
    provenance.record_inputs(progress.run, "before", before)
    provenance.record_files(progress.run, progress.plan)
    provenance.record_sources(progress.run, evaluator.sources, before)
    provenance.record_worktree(progress.run, look())
    provenance.record_environment(progress.run, progress.plan)
    return before


def _endpoint(
    progress: Progress, key: Key | None, scratch: Scratch, stack: ExitStack, asked: Cancellation
) -> Endpoint:
    server = progress.plan.server
    if isinstance(server, OwnServer):
        model = models.verify(server.model)
        endpoint = stack.enter_context(
            serve(server, model, scratch, progress.run / "server.log", lambda: asked.asked)
        )
    else:
        endpoint = Endpoint(server.base_url, server.model, key, progress.declared.container)
    progress.key = endpoint.key
    progress.secrets.add(endpoint.key)
    progress.identity = probe(endpoint)
    provenance.record_declared(progress.run, progress.declared)
    progress.declared.agree(progress.identity.claimed)
    return endpoint


def _describe(
    progress: Progress,
    scratch: Scratch,
    key: Key | None,
    cancelled: Callable[[], bool],
    frozen: Future[dict[str, str]],
) -> None:
    plan = progress.plan
    evaluator = load_evaluator(plan.evaluator)
    if route.names(plan, evaluator):
        frozen.result()
    for entry in plan.entries:
        routed = route.to_data(evaluator, plan.taskset(entry))
        cwd = routed.directory(scratch.path / "work" / entry.name)
        env = native.environment(plan, scratch, key, progress.run.name, routed)
        launch = provenance.launch_folder(progress.run, entry.name)
        files = native.write_launch(plan, entry, launch, merge(entry.over, routed.overrides))
        tasks = list_tasks(plan, entry, files, env, cwd, cancelled)
        progress.tasks[entry.name] = tasks
        progress.routed[entry.name] = routed
        provenance.record_tasks(progress.run, entry.name, tasks)


def laid_over(plan: Plan) -> list[str]:
    """What of the entries was asked otherwise than their files say, in words."""
    return [
        f"{entry.name}: asked otherwise than the profile says: {json.dumps(entry.over, ensure_ascii=False)}"
        for entry in plan.entries
        if entry.over
    ]


def _record(progress: Progress, asked: Cancellation) -> Finished:
    begin = time.monotonic()
    progress.save("recording")
    run, plan = progress.run, progress.plan
    samples, faults = derive(run, plan, progress.tasks)
    if not asked.asked:
        ended_well = {entry.name for entry in progress.state.entries if entry.native_exit_code == 0}
        faults += left_out(plan, samples, ended_well)
    summary = summarise(
        plan,
        progress.tasks,
        samples,
        problems=[*progress.problems, *faults, *leaks(run, progress.key)],
        notes=[*progress.notes, *laid_over(plan)],
        cancelled=asked.asked,
        server=progress.identity.fingerprint if progress.identity else None,
    )
    write_results(run, samples, summary)
    progress.seconds["record"] = round(time.monotonic() - begin, 3)
    write_json_atomic(provenance.folder(run) / "seconds.json", progress.seconds)
    progress.state = progress.state.model_copy(update={"ended_at": now()})
    progress.save(summary.status, "; ".join(summary.problems) or None)
    progress.tell("run-ended", {"status": summary.status})
    progress.close()
    write_manifest(run)
    return Finished(run, summary)
