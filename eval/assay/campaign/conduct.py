"""Carrying a step on: what is owed is found out first, then the server is started, then the run is asked for.

A step that is done is passed by, one whose run was interrupted is resumed, and one whose run is alive, or
which was begun with something else, is refused; nothing is started for any of these.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.campaign import server as servers
from assay.campaign.follow import Followed, ended_well, follow
from assay.campaign.signals import Signals
from assay.campaign.state import Attempt, StepState, load, newest_run, save
from assay.coordinator.lock import RunLock
from assay.errors import AssayError, CancelledError, VerificationError
from assay.run.state import now
from assay.suite.campaign import Campaign, Step
from assay.suite.check import check_runtime, check_suite
from assay.suite.suite import Suite


@dataclass(frozen=True)
class Ended:
    """How far a step is.

    Attributes:
        step: Its name.
        exit_code: 0 when it is done; else the code of its run, or of what kept it from running.
        run: Its run's directory; None where there is none.
        passed_by: It was done before, or nothing was done about it.
        error: What stopped it; None where the run's own code says all.
    """

    step: str
    exit_code: int
    run: Path | None
    passed_by: bool = False
    error: AssayError | None = None


@dataclass(frozen=True)
class Task:
    """A step, and what carrying it on takes.

    Attributes:
        campaign: Whose step it is.
        step: The step.
        suite: The suite that it names.
        folder: The step's own.
        again: The command that goes on with it.
    """

    campaign: Campaign
    step: Step
    suite: Suite
    folder: Path
    again: str

    @property
    def begun_with(self) -> dict[str, str]:
        """What the step is begun with, by name; nothing secret is in it."""
        found = {"suite": self.step.suite, "suite.digest": self.suite.digest}
        server = self.step.server
        if server is not None:
            found["server.command"] = json.dumps(self.server_words)
            found["server.health"] = server.health
            found |= {f"server.environment.{name}": value for name, value in server.environment.items()}
        return found

    @property
    def server_words(self) -> list[str]:
        """The words that start its server, a variable that is not set standing by its name."""
        server = self.step.server
        if server is None:
            return []
        values = {name: os.environ[name] for name in server.places if name in os.environ}
        served = ["assay", "serve", server.serve] if server.serve else []
        return [*served, *server.words(values)]


def standing(task: Task) -> str:
    """How far the step is, in words; nothing is started or changed."""
    state = load(task.folder)
    if state is None:
        return "not begun"
    run = newest_run(task.folder, state.given_up)
    if state.differences(task.begun_with):
        return "begun with something else: it goes on only with --new"
    if state.done and run is not None:
        return f"done: {run}"
    return "begun" if run is None else f"to be resumed: {run}"


def require(task: Task) -> None:
    """Look for everything that a step needs, its server's program and its suite's data alike.

    Raises:
        ConfigurationError: the suite's backends refuse it, or a variable or key is not set.
        PrerequisiteError: something is not there.
    """
    state = load(task.folder)
    if state is not None and state.done and not state.differences(task.begun_with):
        return
    if task.step.server is not None:
        servers.command(task.step.server, task.folder, os.environ)
    check_suite(task.suite)
    check_runtime(task.suite, os.environ)


def carry_on(task: Task, signals: Signals, quiet: bool, anew: bool) -> Ended:
    """Do what is owed of a step.

    Args:
        task: The step.
        signals: What ends it.
        quiet: What its run prints as results goes to standard error.
        anew: Give up what was begun, and begin again.

    Raises:
        AssayError: it cannot be begun; what happens once it was is told by the result.
    """
    with RunLock(task.folder):
        state = _known(task, anew)
        run = newest_run(task.folder, state.given_up)
        if run is not None and (state.done or ended_well(run)):
            if not state.done:
                save(task.folder, _ended(state, run, Followed(0)))
            return Ended(task.step.name, 0, run, passed_by=True)
        return _attempt(task, state, run, signals, quiet)


def _known(task: Task, anew: bool) -> StepState:
    """The step's state, or a new one; VerificationError when it was begun with something else."""
    begun_with = task.begun_with
    state = load(task.folder)
    if state is None:
        return StepState(campaign=task.campaign.name, step=task.step.name, frozen=begun_with)
    if anew:
        run = newest_run(task.folder, state.given_up)
        given_up = (*state.given_up, *([run.name] if run else []))
        return state.model_copy(update={"frozen": begun_with, "run": None, "given_up": given_up})
    changed = state.differences(begun_with)
    if changed:
        raise VerificationError(
            f"step {task.step.name} was begun with something else: {'; '.join(changed)}",
            "its answers would be of two servers or of two suites",
            f"undo the change, or give up what was begun: {task.again} --new",
        )
    return state


def _attempt(task: Task, state: StepState, run: Path | None, signals: Signals, quiet: bool) -> Ended:
    """Start the server, let the run be made or resumed, and record how it ended."""
    step, folder = task.step, task.folder
    log = folder / f"server-{len(state.attempts) + 1}.log" if step.server else None
    attempt = Attempt(
        verb="run" if run is None else "resume", started_at=now(), server_log=log.name if log else None
    )
    state = state.model_copy(update={"attempts": (*state.attempts, attempt)})
    save(folder, state)
    words = ["resume", str(run)] if run else ["run", "--suite", step.suite, "--runs", str(folder)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with _server(task, log, signals, started) as child:
            ended = follow(words, child, signals, task.again, quiet)
    except AssayError as error:
        ended = Followed(error.exit_code, error)
    if ended.problem is None and ended.exit_code != 0 and signals.asked:
        ended = Followed(ended.exit_code, CancelledError("cancelled", "", task.again))
    run = newest_run(folder, state.given_up)
    save(folder, _ended(state, run, ended, started[0].returncode if started else None))
    code = ended.exit_code if ended.problem is None else ended.problem.exit_code
    return Ended(step.name, code, run, error=ended.problem)


def _ended(state: StepState, run: Path | None, ended: Followed, server: int | None = None) -> StepState:
    """The state with its last attempt ended."""
    told = None if ended.problem is None else str(ended.problem)
    after = {
        "ended_at": now(),
        "exit_code": ended.exit_code,
        "server_exit_code": server,
        "error": told,
    }
    *before, last = state.attempts or (Attempt(verb="resume", started_at=now()),)
    attempts = (*before, last.model_copy(update=after))
    return state.model_copy(update={"run": run.name if run else None, "attempts": attempts})


@contextmanager
def _server(
    task: Task, log: Path | None, signals: Signals, started: list[subprocess.Popen[bytes]]
) -> Iterator[subprocess.Popen[bytes] | None]:
    """The step's server, while the block lasts; None where one is there already."""
    server = task.step.server
    if server is None or log is None:
        yield None
        return
    with servers.serving(task.step, server, task.folder, log, os.environ, signals, started.append) as child:
        yield child


def worst(codes: Mapping[str, int], signals: Signals | None = None) -> int:
    """The code of a campaign whose steps ended with these: the gravest, in the order of `GRAVEST`."""
    cancelled = signals is not None and signals.asked > 0
    return 6 if cancelled else next((code for code in GRAVEST if code in codes.values()), 0)


GRAVEST = (6, 5, 3, 2, 4)
