"""`assay run PROFILE [ENTRY]|--suite FILE`: run a profile or a suite, record it, print what it found."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from assay import setup
from assay.cli import answer, shared
from assay.console import say
from assay.errors import ConfigurationError
from assay.evaluator import load_evaluator
from assay.files import write_json_atomic
from assay.paths import OWNED, RUNS, owned_directory
from assay.plan import EntryPlan, Plan, load_plan, overrides
from assay.planning import PLACEHOLDER_IMAGE, require_evaluator, runtime_refused
from assay.profile import describe, find_profile
from assay.record.render import pins_said, show
from assay.record.summary import EXIT_CODES
from assay.run import native, route
from assay.run.address import check_url
from assay.run.conduct import OWNER, Finished, conduct, forget_the_dead
from assay.run.declared import Declared, read_declared
from assay.run.endpoint import Endpoint, probe
from assay.run.key import KEY_FILE_VARIABLES, Key, find_key
from assay.run.native import Scratch
from assay.run.prepare import Choice, draft, prepare, prepare_again
from assay.run.state import this_process
from assay.run.tasks import describes_itself, list_tasks
from assay.signing.key import SigningKey, take_signing_key
from assay.signing.sign import signature_said
from assay.suite.job import Generation


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser("run", parents=[shared()], help="run a profile or a suite, and record it")
    parser.add_argument(
        "profile", metavar="PROFILE", nargs="?", help="a profile, or the resolved.json of an earlier run"
    )
    parser.add_argument("entry", metavar="ENTRY", nargs="?", help="one entry of the profile (default: all)")
    parser.add_argument(
        "--suite",
        metavar="FILE[:LIST]",
        help="a suite's file or name, or a profile as a suite of its entries",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="let the evaluator validate it, and ask nothing"
    )
    parser.add_argument(
        "--runtime",
        choices=("docker", "subprocess"),
        help="where rollouts run (default: the first that is there)",
    )
    parser.add_argument(
        "--concurrency", type=int, metavar="N", help="rollouts in flight (default: the entry's)"
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="only the first N tasks of each entry (default: all)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a sampling option laid over the entry's own, as in TOML; may be given several times",
    )
    parser.add_argument("--base-url", metavar="URL", help="a server that is already there, ending in /v1")
    parser.add_argument("--model", metavar="NAME", help="the name to ask that server for")
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help=f"its key (default: the path in ${', else $'.join(KEY_FILE_VARIABLES)})",
    )
    parser.add_argument(
        "--model-manifest", type=Path, metavar="FILE", help="files and digests of what that server serves"
    )
    parser.add_argument(
        "--runs", type=Path, default=RUNS, metavar="DIR", help="where the run directory is made"
    )
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    """Run, print, and return the run's exit code."""
    # First, and out of the environment: no child hears of it, and nothing is asked with one that is unfit.
    signer = None if arguments.dry_run else take_signing_key(os.environ)
    if arguments.suite is not None:
        return _suite(arguments, signer)
    if arguments.profile is None:
        raise ConfigurationError("nothing is named", "", "assay run PROFILE, or assay run --suite FILE")
    declared = read_declared(arguments.model_manifest, os.environ)
    if arguments.dry_run:
        return _dry_run(_plan(arguments, declared), arguments.json)
    # Before the plan: a wrong place is refused before minutes are spent on setting up.
    runs = _runs(arguments.runs)
    plan = _plan(arguments, declared)
    key = _key(arguments) if plan.server.kind == "other" else None
    _banner(plan)
    finished = conduct(plan, key, runs, declared, signer)
    return _show(finished, arguments.json)


def _suite(arguments: argparse.Namespace, signer: SigningKey | None) -> int:
    given = {
        "PROFILE": arguments.profile,
        "--dry-run": arguments.dry_run or None,
        "--runtime": arguments.runtime,
        "--concurrency": arguments.concurrency,
        "--base-url": arguments.base_url,
        "--model": arguments.model,
        "--key-file": arguments.key_file,
        "--model-manifest": arguments.model_manifest,
    }
    refused = [name for name, value in given.items() if value is not None]
    if refused:
        raise ConfigurationError(
            f"{', '.join(refused)} cannot be combined with --suite",
            "a suite says itself what is asked of whom",
            "leave that out, and write it into the suite's file",
        )
    # Here alone: a profile's run needs none of it.
    from assay.coordinator.command import run_suite

    return run_suite(arguments.suite, _runs(arguments.runs), arguments.json, signer)


def _plan(arguments: argparse.Namespace, declared: Declared) -> Plan:
    if arguments.concurrency is not None and arguments.concurrency < 1:
        raise ConfigurationError(
            f"--concurrency is {arguments.concurrency}",
            "at least one rollout must be in flight",
            "leave it out, and the entry's own number is taken",
        )
    if arguments.limit is not None and arguments.limit < 1:
        raise ConfigurationError(
            f"--limit is {arguments.limit}", "at least one task must be asked", "leave it out to ask all"
        )
    if arguments.profile.endswith(".json"):
        plan = _resolved(arguments)
        declared.check(plan.server)
        return plan if arguments.dry_run else prepare_again(plan, lambda: _reach(plan, arguments))
    profile = find_profile(arguments.profile)
    choice = Choice(
        arguments.entry,
        arguments.runtime,
        arguments.base_url,
        arguments.model,
        arguments.concurrency,
        arguments.limit,
        _sampling(arguments.set),
    )
    drafted = draft(profile, choice, choice.runtime or profile.runtimes[0], PLACEHOLDER_IMAGE)
    declared.check(drafted.server)
    if arguments.dry_run:
        return drafted
    if profile.serve is not None and arguments.base_url is None and arguments.key_file is not None:
        raise ConfigurationError(
            f'profile "{profile.name}" serves its own model, which has a key of its own',
            "--key-file is for a server that is already there",
            "leave it out, or give --base-url and --model too",
        )
    if profile.serve is None or arguments.base_url is not None:
        _key(arguments)
    return prepare(profile, choice, lambda: _reach(drafted, arguments))


def _reach(plan: Plan, arguments: argparse.Namespace) -> None:
    """Ask a server that must be there already whether it is."""
    if plan.server.kind == "other":
        probe(Endpoint(plan.server.base_url, plan.server.model, _key(arguments)))


def _key(arguments: argparse.Namespace) -> Key | None:
    return find_key(arguments.key_file, os.environ)


def _resolved(arguments: argparse.Namespace) -> Plan:
    given = {
        "ENTRY": arguments.entry,
        "--runtime": arguments.runtime,
        "--concurrency": arguments.concurrency,
        "--limit": arguments.limit,
        "--set": arguments.set or None,
        "--base-url": arguments.base_url,
        "--model": arguments.model,
    }
    refused = [name for name, value in given.items() if value is not None]
    if refused:
        raise ConfigurationError(
            f"{', '.join(refused)} cannot be combined with a resolved run",
            "it is run as it stands",
            "leave that out, or name a profile instead",
        )
    plan = load_plan(Path(arguments.profile))
    require_evaluator(plan)
    profile = find_profile(plan.profile)
    if plan.runtime not in profile.runtimes:
        raise runtime_refused(profile, plan.runtime)
    if plan.server.kind == "other":
        check_url(plan.server.base_url)
    return plan


def _sampling(lines: Sequence[str]) -> dict[str, Any]:
    """The sampling options of `--set`, those that were given; ConfigurationError when one is none."""
    try:
        return Generation.model_validate(tomllib.loads("\n".join(lines))).model_dump(
            mode="json", exclude_unset=True
        )
    except ValueError as error:
        raise ConfigurationError(
            f"--set {' --set '.join(lines)} cannot be used",
            describe(error, Generation),
            "for example: --set temperature=0.6 --set reasoning_effort='\"low\"'",
        ) from error


def _runs(path: Path) -> Path:
    if path == RUNS:
        return owned_directory(RUNS)
    if path.is_symlink() or not path.is_dir():
        raise ConfigurationError(f"--runs {path} is not a directory", "", f"mkdir -p {path}")
    return path.resolve()


def _banner(plan: Plan) -> None:
    say(f"assay: {plan.profile}: {plan.description}")
    _say_pins(plan)
    say(f"assay: {plan.planned} rollouts; runtime: {plan.runtime}; egress: {plan.egress}")
    if plan.runtime == "subprocess":
        say("assay: no Docker engine is used: the harness runs on this host, and egress is not enforced")


def _say_pins(plan: Plan) -> None:
    for line in pins_said(plan.pins):
        say(f"assay: {line}")


def _dry_run(plan: Plan, as_json: bool) -> int:
    _say_pins(plan)
    setup.require(setup.ENVIRONMENTS[plan.evaluator])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    private = owned_directory(OWNED / "private", mode=0o700)
    forget_the_dead(private)
    scratch = Scratch(Path(tempfile.mkdtemp(prefix="dry-run-", dir=private)))
    try:
        write_json_atomic(scratch.path / OWNER, this_process().model_dump(mode="json"))
        # Two at a time: most of it is the evaluator's imports.
        with ThreadPoolExecutor(2) as pool:
            for line in pool.map(lambda entry: _dry_entry(plan, entry, scratch), plan.entries):
                say(line)
    finally:
        scratch.remove()
    if as_json:
        answer(
            {
                "status": "valid",
                "profile": plan.profile,
                "pins": plan.pins,
                "planned": plan.planned,
                "plan_digest": plan.digest,
            }
        )
    return 0


def _dry_entry(plan: Plan, entry: EntryPlan, scratch: Scratch) -> str:
    """Validate one entry natively, without key, server or data; says what was found."""
    base_url = "http://127.0.0.1:1/v1" if plan.server.kind == "own" else plan.server.base_url
    routed = route.to_nowhere(load_evaluator(plan.evaluator), plan.taskset(entry))
    over = overrides(
        plan,
        entry,
        entry.parts[0],
        base_url,
        plan.server.model,
        scratch.folder("out"),
        "dry-run",
        routed.overrides,
    )
    files = native.write_launch(plan, entry, scratch.folder(entry.name), over)
    env = native.environment(plan, scratch, None, "dry-run", routed)
    native.validate(plan, entry, files, env, scratch.path)
    if not describes_itself(plan, entry):
        return f"assay: {plan.profile}/{entry.name}: valid; {entry.tasks} tasks x {entry.rollouts}"
    tasks = list_tasks(plan, entry, files, env, scratch.path)
    families = len({task.family for task in tasks.tasks})
    return f"assay: {plan.profile}/{entry.name}: valid; {entry.tasks} tasks of {families} families"


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
                "run_dir": str(finished.run),
                "status": summary.status,
                "exit_code": code,
                "signed_by": signed_by,
                "pins": summary.pins,
                "runtime": summary.runtime,
                "egress": summary.egress,
                "counts": summary.counts.model_dump(),
                "scores": [family.model_dump() for family in summary.families],
                "problems": list(summary.problems),
                "notes": list(summary.notes),
            }
        )
    return code
