"""`assay campaign FILE [STEP]`: suites one after the other, each of a server started for it."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.campaign.conduct import Ended, Task, carry_on, require, standing, worst
from assay.campaign.follow import command, last_object
from assay.campaign.signals import Signals
from assay.cli import answer, shared
from assay.console import complain, say
from assay.errors import AssayError, ConfigurationError
from assay.paths import ROOT, RUNS, owned_directory
from assay.suite.campaign import FOLDER, Campaign, Step, find_campaign
from assay.suite.read import read_suite


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "campaign",
        parents=[shared()],
        help="start a server, ask a suite of it, end it; step by step",
        description="Carry a campaign on: for each step that is not done, start its server, wait until it "
        "can be asked, run the step's suite (or resume its run), and end the server.",
        epilog="The same command goes on with what is unfinished and passes by what is done.",
    )
    parser.add_argument(
        "file", metavar="FILE", help="a campaign's TOML file, or a name in eval/configs/campaigns"
    )
    parser.add_argument("step", metavar="STEP", nargs="?", help="one step of it (default: all, in order)")
    parser.add_argument("--plan", action="store_true", help="show what would be done, and start nothing")
    parser.add_argument(
        "--check-runtime", action="store_true", help="with --plan: look whether what it needs is there"
    )
    parser.add_argument(
        "--new", action="store_true", help="give up the runs that were begun, and begin again"
    )
    parser.add_argument(
        "--runs", type=Path, default=RUNS, metavar="DIR", help="where the campaign's folder is made"
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Plan or carry on, and return the gravest code of a step."""
    campaign = find_campaign(arguments.file)
    steps = campaign.steps(arguments.step)
    if arguments.plan and arguments.new:
        raise ConfigurationError("--plan changes nothing, so it cannot be combined with --new")
    if arguments.check_runtime and not arguments.plan:
        raise ConfigurationError(
            "--check-runtime belongs to --plan; without it everything is looked at anyway"
        )
    tasks = [_task(campaign, step, arguments) for step in steps]
    say(f"assay: {campaign.name}: {campaign.description}")
    if arguments.plan:
        return _plan(tasks, arguments)
    with Signals() as signals:
        ended = _carry_on(tasks, signals, arguments)
        code = worst({found.step: found.exit_code for found in ended}, signals)
    return _show(campaign, ended, code, arguments.json)


def _task(campaign: Campaign, step: Step, arguments: argparse.Namespace) -> Task:
    """A step with its folder, made if need be, and the digest of what it asks."""
    options = [] if arguments.runs == RUNS else ["--runs", str(arguments.runs)]
    again = shlex.join(["eval/scripts/campaign", arguments.file, step.name, *options])
    suite = read_suite(step.suite).suite
    return Task(campaign, step, suite, _home(arguments.runs) / FOLDER / campaign.name / step.name, again)


def _home(runs: Path) -> Path:
    if runs == RUNS:
        return owned_directory(RUNS)
    if runs.is_symlink() or not runs.is_dir():
        raise ConfigurationError(f"--runs {runs} is not a directory", "", f"mkdir -p {runs}")
    return runs.resolve()


def _plan(tasks: list[Task], arguments: argparse.Namespace) -> int:
    """Show each step's server and standing, and what its suite asks as `assay plan` tells it."""
    codes: dict[str, int] = {}
    told: list[dict[str, Any]] = []
    options = ["--check-runtime"] if arguments.check_runtime else []
    for task in tasks:
        server = task.step.server
        where = standing(task)
        started = None if server is None else shlex.join(task.server_words)
        say(f"assay: step {task.step.name}: {where}")
        say(f"assay:   server: {started or 'there already'}")
        done = subprocess.run(
            command("plan", "--suite", task.step.suite, *options, *(["--json"] if arguments.json else [])),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if arguments.json else None,
            check=False,
        )
        codes[task.step.name] = done.returncode
        planned = last_object(done.stdout) if arguments.json else None
        told.append({"step": task.step.name, "standing": where, "server": started, "plan": planned})
    code = worst(codes)
    if arguments.json:
        answer({"status": "planned", "campaign": tasks[0].campaign.name, "exit_code": code, "steps": told})
    return code


def _carry_on(tasks: Sequence[Task], signals: Signals, arguments: argparse.Namespace) -> list[Ended]:
    """Carry the steps on in their order, each whatever became of the others, until the user wants an end."""
    # Before any server is started: hours may lie between two steps.
    for task in tasks:
        require(task)
    ended: list[Ended] = []
    for task in tasks:
        if signals.asked:
            break
        try:
            _make(task.folder)
            found = carry_on(task, signals, arguments.json, arguments.new)
        except AssayError as error:
            found = Ended(task.step.name, error.exit_code, None, error=error)
        ended.append(found)
        if found.error is not None:
            complain(found.error)
        where = f"; run: {found.run}" if found.run else ""
        what = "done before" if found.passed_by else WORDS.get(found.exit_code, f"exit {found.exit_code}")
        say(f"assay: step {found.step}: {what}{where}")
    return ended


def _make(folder: Path) -> None:
    if folder.is_relative_to(RUNS):
        owned_directory(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)


def _show(campaign: Campaign, ended: Sequence[Ended], code: int, as_json: bool) -> int:
    """Print what `--json` promises, and return the campaign's code."""
    if as_json:
        steps = [
            {
                "step": found.step,
                "exit_code": found.exit_code,
                "run_dir": str(found.run) if found.run else None,
                "passed_by": found.passed_by,
                "error": str(found.error) if found.error else None,
            }
            for found in ended
        ]
        answer(
            {
                "status": WORDS.get(code, "failed"),
                "campaign": campaign.name,
                "exit_code": code,
                "steps": steps,
            }
        )
    return code


WORDS = {0: "done", 2: "refused", 3: "missing", 4: "partial", 5: "failed", 6: "cancelled"}
