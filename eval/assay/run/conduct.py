"""Conducting a run: freeze, serve, ask, check again, record; whatever happens, the record tells the truth.

The order matters. Inputs are hashed and the server identified before the first request and after each entry;
a difference fails the run. Samples and summary are derived from what lies on the disk when the evaluator has
ended, however it ended, and the manifest is written last.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from assay import models, sandbox
from assay.console import say
from assay.errors import AssayError, CancelledError, RunError
from assay.evaluator import Evaluator, load_evaluator
from assay.files import write_json_atomic
from assay.paths import OWNED, owned_directory
from assay.plan import EntryPlan, OwnServer, Part, Plan, overrides
from assay.process import end, start
from assay.profile import merge
from assay.record import dialects, episodes
from assay.record.manifest import write_manifest
from assay.record.results import derive, left_out, summarise, write_results
from assay.record.summary import Summary
from assay.run import containers, interpreter, native, provenance, route
from assay.run.client import write_client
from assay.run.declared import Declared
from assay.run.directory import create
from assay.run.endpoint import Endpoint, probe
from assay.run.freeze import changes, during, freeze
from assay.run.guard import Guard, guard
from assay.run.keeper import keeper
from assay.run.key import Key
from assay.run.native import Scratch
from assay.run.progress import Progress
from assay.run.server_check import leaks, look_again
from assay.run.serving import serve
from assay.run.state import Owner, Phase, now, this_process
from assay.run.tasks import list_tasks
from assay.run.watch import Cancellation, cancellation, count_lines, watch
from assay.run.worktree import look

CLEANUP_GRACE_S = 30.0
OWNER = "owner.json"


@dataclass(frozen=True)
class Finished:
    """A run that has been recorded."""

    run: Path
    summary: Summary


def conduct(plan: Plan, key: Key | None, runs: Path, declared: Declared | None = None) -> Finished:
    """Carry out a plan and record it.

    Args:
        plan: What to do; its set-up has been checked.
        key: The endpoint's key, when the server is not the run's own.
        runs: Where the run's directory is made.
        declared: What the operator says of the server.

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
        say(f"assay: run directory: {progress.run}")
        begin = time.monotonic()
        scratch = Scratch(private / progress.run.name)
        try:
            try:
                scratch.path.mkdir(mode=0o700)
                write_json_atomic(scratch.path / OWNER, this_process().model_dump(mode="json"))
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
            raise


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
        for entry in plan.entries:
            if asked.asked or progress.problems:
                break
            if not _same_server(progress, entry, endpoint, "before"):
                break  # whoever answers now, it is not who was to be asked
            _run_entry(progress, entry, endpoint, scratch, extra, asked)
            if not asked.asked:
                _check_again(progress, entry, endpoint, evaluator, before)
        with progress.timed("server"):
            stack.close()


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
    progress.identity = probe(endpoint)
    provenance.record_declared(progress.run, progress.declared)
    progress.declared.agree(progress.identity.claimed)
    return endpoint


def _same_server(progress: Progress, entry: EntryPlan, endpoint: Endpoint, when: str) -> bool:
    """Record who the server is before or after an entry; whether it is the one that the run began with."""
    if progress.identity is None:
        return False
    with progress.timed("server"):
        found = look_again(progress.run, entry.name, when, endpoint, progress.identity)
    progress.problems += found
    return not found


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
        launch = _launch_folder(progress, entry.name)
        files = native.write_launch(plan, entry, launch, merge(entry.over, routed.overrides))
        tasks = list_tasks(plan, entry, files, env, cwd, cancelled)
        progress.tasks[entry.name] = tasks
        progress.routed[entry.name] = routed
        provenance.record_tasks(progress.run, entry.name, tasks)


def _launch_folder(progress: Progress, folder: str) -> Path:
    return provenance.folder(progress.run) / "launch" / folder


def _run_entry(
    progress: Progress,
    entry: EntryPlan,
    endpoint: Endpoint,
    scratch: Scratch,
    extra: Mapping[str, str],
    asked: Cancellation,
) -> None:
    """Ask everything of one entry; what goes wrong is told in the record, and what has finished stays."""
    progress.entry(entry.name, started_at=now())
    before = 0
    code: int | None = None
    for part in entry.parts:
        if asked.asked or code:
            break
        try:
            code = _run_part(progress, entry, part, before, endpoint, scratch, extra, asked)
        except (AssayError, OSError) as error:
            progress.problems.append(f"{part.folder}: the evaluator cannot be run: {error}")
            code = None
            break
        before += count_lines(_record_of(progress, part))
    progress.entry(entry.name, finished=before, ended_at=now(), native_exit_code=code)


def _run_part(
    progress: Progress,
    entry: EntryPlan,
    part: Part,
    finished: int,
    endpoint: Endpoint,
    scratch: Scratch,
    extra: Mapping[str, str],
    asked: Cancellation,
) -> int:
    """Start the evaluator once and watch it; `finished` rollouts of the entry are there already."""
    plan, run = progress.plan, progress.run
    routed = progress.routed[entry.name]
    cwd = routed.directory(scratch.path / "work" / entry.name)
    routes = merge(routed.overrides, interpreter.override(plan, entry))
    over = overrides(plan, entry, part, endpoint.base_url, endpoint.model, run, run.name, routes)
    launch = _launch_folder(progress, part.folder)
    words = native.command(plan, native.write_launch(plan, entry, launch, over))
    said = native.variables(plan, scratch, run.name, routed) | {"TMPDIR": str(scratch.temporary()), **extra}
    if plan.runtime == "docker":
        bounding = write_client(scratch.folder("bin"), run.name, plan.docker)
        said["PATH"] = os.pathsep.join([str(bounding.parent), said["PATH"]])
    provenance.record_launch(launch, words, said, plan.key_variable, cwd, routed)
    env = native.environment(plan, scratch, endpoint.key, run.name, routed) | said
    log = run / "run.log"
    with progress.timed("native"), log.open("ab") as stream, ExitStack() as kept:
        child = start(words, env=env, cwd=cwd, stdout=stream, death_signal=signal.SIGTERM)
        watching = guard(run.name, plan.docker, child.pid) if plan.runtime == "docker" else None
        try:
            kept.enter_context(keeper(child))
            watch(
                f"{plan.profile}/{part.folder}",
                entry.tasks * part.rollouts,
                lambda: _record_of(progress, part),
                lambda: child.poll() is None,
                asked,
                lambda count: progress.entry(entry.name, finished=finished + count),
            )
            if asked.asked:
                _stop(progress, child, asked)
        finally:
            code = end(child, signal.SIGKILL if asked.urgent else signal.SIGTERM)
            if watching is not None:
                _end_of_containers(progress, part, watching)
    if code != 0 and not asked.asked:
        words_said = native.last_words(log.read_bytes())
        progress.notes.append(f"{part.folder}: the evaluator ended with exit code {code}: {words_said}")
    return code


def _end_of_containers(progress: Progress, part: Part, watching: Guard) -> None:
    """Remove what the evaluator left, and tell what its containers were held to."""
    watching.end()
    if containers.sweep(progress.run.name) is None:
        progress.notes.append(
            f"{part.folder}: the Docker engine does not answer any more; "
            "containers that it kept are removed before the next run"
        )
    provenance.record_containers(progress.run, part.folder, watching.describe())
    progress.notes += [f"{part.folder}: {note}" for note in watching.notes()]
    progress.problems += [
        f"{part.folder}: rollouts ran in container {container}, whose limits were not seen to hold"
        for container in watching.unseen(episodes.containers(_record_of(progress, part)))
    ]


def laid_over(plan: Plan) -> list[str]:
    """What of the entries was asked otherwise than their files say, in words."""
    return [
        f"{entry.name}: asked otherwise than the profile says: {json.dumps(entry.over, ensure_ascii=False)}"
        for entry in plan.entries
        if entry.over
    ]


def _record_of(progress: Progress, part: Part) -> Path:
    return dialects.of(progress.plan.dialect).record(progress.run / part.folder)


def _stop(progress: Progress, child: subprocess.Popen[bytes], asked: Cancellation) -> None:
    say("assay: stopping; what has finished is kept (again to stop at once)")
    child.send_signal(signal.SIGINT)
    deadline = time.monotonic() + CLEANUP_GRACE_S
    while child.poll() is None and not asked.urgent and time.monotonic() < deadline:
        time.sleep(0.1)


def _check_again(
    progress: Progress,
    entry: EntryPlan,
    endpoint: Endpoint,
    evaluator: Evaluator,
    before: Mapping[str, str],
) -> None:
    _same_server(progress, entry, endpoint, "after")
    with progress.timed("freeze"):
        try:
            after = freeze(progress.plan, evaluator, (entry,))
            known = during(before, progress.plan, evaluator, entry)
            provenance.record_inputs(progress.run, f"after-{entry.name}", after)
            progress.problems += [
                f"{entry.name}: the frozen input {name} changed during the run"
                for name in changes(known, after)
            ]
        except AssayError as error:
            progress.problems.append(f"{entry.name}: a frozen input cannot be verified any more: {error}")


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
    write_manifest(run)
    return Finished(run, summary)
