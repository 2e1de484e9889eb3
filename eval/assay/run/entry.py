"""Conducting one entry of a profile: its native invocations, what watches over them, and the looks around it.

What goes wrong is told in the record, and what has finished stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.console import say
from assay.errors import AssayError
from assay.evaluator import Evaluator
from assay.plan import EntryPlan, Part, overrides
from assay.profile import merge
from assay.record import dialects, episodes
from assay.run import containers, interpreter, native, provenance
from assay.run.client import write_client
from assay.run.endpoint import Endpoint
from assay.run.freeze import changes, during, freeze
from assay.run.guard import Guard, guard
from assay.run.kept import end, kept
from assay.run.native import Scratch
from assay.run.progress import Progress
from assay.run.server_check import look_again
from assay.run.state import now
from assay.run.watch import Cancellation, count_lines, watch

CLEANUP_GRACE_S = 30.0


@dataclass(frozen=True)
class Around:
    """What stands around the entries of a run.

    Attributes:
        progress: The run.
        evaluator: What asks and scores.
        endpoint: The server.
        scratch: The run's private folder.
        extra: What the evaluator's environment needs besides.
        before: The frozen inputs before the first request.
        asked: What signals ask for.
    """

    progress: Progress
    evaluator: Evaluator
    endpoint: Endpoint
    scratch: Scratch
    extra: Mapping[str, str]
    before: Mapping[str, str]
    asked: Cancellation


def conduct_entry(around: Around, entry: EntryPlan) -> None:
    """Identify the server, ask everything of one entry, identify again and hash its inputs again."""
    progress, asked = around.progress, around.asked
    if not _same_server(progress, entry, around.endpoint, "before"):
        return  # whoever answers now, it is not who was to be asked
    progress.tell("entry-started", {"entry": entry.name})
    _run_entry(progress, entry, around.endpoint, around.scratch, around.extra, asked)
    if not asked.asked:
        _check_again(progress, entry, around.endpoint, around.evaluator, around.before)
    found = next(each for each in progress.state.entries if each.name == entry.name)
    said = {"finished": found.finished, "planned": found.planned, "native_exit_code": found.native_exit_code}
    progress.tell("entry-ended", {"entry": entry.name, **said})


def _same_server(progress: Progress, entry: EntryPlan, endpoint: Endpoint, when: str) -> bool:
    """Record who the server is before or after an entry; whether it is the one that the run began with."""
    if progress.identity is None:
        return False
    with progress.timed("server"):
        found = look_again(progress.run, entry.name, when, endpoint, progress.identity)
    progress.problems += found
    return not found


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
    launch = provenance.launch_folder(progress.run, part.folder)
    words = native.command(plan, native.write_launch(plan, entry, launch, over))
    said = native.variables(plan, scratch, run.name, routed) | {"TMPDIR": str(scratch.temporary()), **extra}
    if plan.runtime == "docker":
        bounding = write_client(scratch.folder("bin"), run.name, plan.docker)
        said["PATH"] = os.pathsep.join([str(bounding.parent), said["PATH"]])
    provenance.record_launch(launch, words, said, plan.key_variable, cwd, routed)
    env = native.environment(plan, scratch, endpoint.key, run.name, routed) | said
    log = run / "run.log"
    with (
        progress.timed("native"),
        log.open("ab") as stream,
        kept(words, env=env, cwd=cwd, stdout=stream) as child,
    ):
        watching = guard(run.name, plan.docker, child.pid) if plan.runtime == "docker" else None
        try:
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
