"""What the verbs do with the run of a suite: run it, take it up again, say where it stands, print results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from assay.cli import answer
from assay.console import printable, say
from assay.coordinator.conduct import Finished, conduct
from assay.coordinator.directory import load_suite
from assay.coordinator.lock import Holder, read_holder
from assay.coordinator.results import look
from assay.coordinator.resume import resume
from assay.coordinator.state import JobState, Standing, State, exit_code, load_state, standing
from assay.record.manifest import NAME as MANIFEST
from assay.record.suite_render import show
from assay.record.suite_results import recompute
from assay.record.suite_summary import SuiteSummary
from assay.record.summary import EXIT_CODES
from assay.signing.key import SigningKey
from assay.signing.sign import signature_said
from assay.suite.check import check_suite
from assay.suite.key import refuse_own_keys
from assay.suite.prepare import prepare
from assay.suite.read import read_suite


def run_suite(reference: str, runs: Path, as_json: bool, signer: SigningKey | None) -> int:
    """Run a suite from its beginning, print what it found, and return the run's exit code.

    Args:
        reference: As `assay.suite.read` takes it.
        runs: Where the run directory is made.
        as_json: Print one JSON object as well.
        signer: Who vouches for the record; None for nobody.
    """
    asked = read_suite(reference)
    suite = asked.suite
    slots = ", ".join(f"{target.name} ({target.max_concurrency} at once)" for target in suite.targets)
    say(f"assay: {suite.name}: {suite.description}")
    say(f"assay: {len(suite.jobs)} jobs, {suite.running.max_parallel_jobs} at once; targets: {slots}")
    check_suite(suite)
    refuse_own_keys(suite, asked.text, os.environ)
    prepare(suite, os.environ)
    # A resume reads the same file again, wherever it is typed.
    named = reference if asked.path is None else reference.replace(str(asked.path), str(asked.path.resolve()))
    return _show(conduct(asked, named, runs, signer), as_json)


def resume_suite(run: Path, as_json: bool, signer: SigningKey | None) -> int:
    """Take a suite's run up again, print what it found, and return the run's exit code."""
    finished = resume(run, signer)
    if finished is None:
        say(f"assay: {run}: it is done; nothing is left to be asked")
        finished = Finished(run.resolve(), recompute(run))
    return _show(finished, as_json)


def summarize_suite(run: Path, as_json: bool) -> int:
    """Print the results of what lies in a run's directory; nothing is written."""
    return _show(Finished(run, summary_of(run)), as_json)


def summary_of(run: Path) -> SuiteSummary:
    """The summary computed again: from the recorded rows of a run that ended, else from native records."""
    state = load_state(run)
    if (run / MANIFEST).exists():
        return recompute(run)
    return look(run, load_suite(run), state)


def status_of_suite(run: Path, as_json: bool) -> int:
    """Print where a run and each of its jobs stand; 0 while it is live, else the run's own exit code."""
    state = load_state(run)
    holder = read_holder(run)
    stands = standing(run, state, holder)
    code = exit_code(stands, state)
    print(printable(f"{run}: {stands}"))
    for job in state.jobs:
        print(printable(f"  {_line(job)}"))
    for line in _advice(run, state, stands, holder):
        print(printable(f"  {line}"))
    if as_json:
        value: dict[str, Any] = {
            "run_dir": str(run.resolve()),
            "status": stands,
            "exit_code": code,
            **state.model_dump(mode="json"),
            "holder": None if holder is None else holder.model_dump(mode="json"),
        }
        answer(value)
    return code


def _line(job: JobState) -> str:
    stands = job.verdict or job.phase
    told = [f"{job.id}: {stands}, {job.done}/{'?' if job.total is None else job.total}"]
    if job.attempt > 1:
        told.append(f"attempt {job.attempt}")
    if job.spent.replayed:
        told.append(f"{job.spent.replayed} answers from before")
    if job.budget is not None:
        told.append(f"its budget of {job.budget} is spent")
    if job.error is not None:
        told.append(job.error)
    return ", ".join(told)


def _advice(run: Path, state: State, stands: Standing, holder: Holder | None) -> list[str]:
    lines = [*state.problems, *([state.error] if state.error else [])]
    if stands == "died" and holder is not None:
        pid = holder.owner.pid
        gone = (
            f"process {pid} writes elsewhere, and this is a copy"
            if holder.owner.alive
            else f"its process {pid} is gone"
        )
        lines.append(f"{gone}; every answer that it had is kept")
    if stands == "foreign" and holder is not None:
        lines.append(f"it was last written on {holder.host}: from here nobody can tell whether it lives")
    left = [job for job in state.jobs if job.verdict != "done" or job.phase != "ended"]
    if stands == "partial" and left and all(job.budget is not None for job in left):
        lines.append(
            "what its budget left unasked stays missing; a new run, with another budget, would ask it"
        )
    elif stands not in ("live", "done", "foreign"):
        lines.append(f"next: assay resume {run}")
    return lines


def _show(finished: Finished, as_json: bool) -> int:
    summary = finished.summary
    code = EXIT_CODES[summary.status]
    show(summary, stderr=as_json)
    signed_by, said = signature_said(finished.run)
    for line in (said, f"run: {finished.run}"):
        (say if as_json else print)(line)
    if as_json:
        answer(
            {
                "run_dir": str(finished.run.resolve()),
                "exit_code": code,
                "signed_by": signed_by,
                **summary.model_dump(mode="json"),
            }
        )
    return code
