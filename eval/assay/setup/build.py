"""Make environments, or bring them up to date: four steps, each timed, then the seal and stamp.

The order is the one that works from an empty cache: (1) the build group, (2) the requirements, built
without isolation with that group and compiled to byte code, (3) the checkout's own packages, editable,
offline, (4) the consistency check. The stamp is removed before the first change and written after the last
check. An environment without one is removed and made again from the cache, since a killed installer leaves
packages half-copied and then takes them for installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assay.bootstrap import HIGHEST, LOWEST, Interpreter, find
from assay.console import say, step
from assay.errors import AssayError, PrerequisiteError, VerificationError
from assay.paths import owned_directory, relative
from assay.setup import machine, metadata, stamp, tool
from assay.setup.check import compare, require_none
from assay.setup.consistency import require_consistent
from assay.setup.environments import ENVIRONMENTS, Environment, EnvironmentState
from assay.setup.programs import verify_programs
from assay.setup.turn import turn
from assay.sources import Mirror, fetch_all, guarded, verify


@dataclass(frozen=True)
class Work:
    """One environment that has to be made or updated, why, and with which Python."""

    environment: Environment
    why: stamp.Staleness
    interpreter: Interpreter


def ensure(environment: Environment, python: str | None = None) -> EnvironmentState:
    """Make the environment, bring it up to date, or find that it already is.

    Args:
        environment: The environment.
        python: A Python that it must be made with; any that fits when None.

    Raises:
        PrerequisiteError: a tool, headers, space or the package index is missing.
        VerificationError: what was downloaded is not what is locked.
    """
    return ensure_all([environment], python)[0]


def ensure_all(
    environments: Sequence[Environment],
    python: str | None = None,
    rebuild: bool = False,
    mirror: Mirror | None = None,
) -> list[EnvironmentState]:
    """`ensure` for several environments; those that have to be made are made beside each other.

    Args:
        environments: The environments.
        python: A Python they must be made with; any that fits when None.
        rebuild: Make them again even where they are whole.
        mirror: Where pinned sources are fetched from instead of their own repositories.
    """
    wanted = {item.name: demanded(item, python) for item in environments}
    if rebuild or any(stamp.staleness(item, wanted[item.name]) for item in environments):
        with turn() as handle:
            # Another set-up may have done it while this one waited.
            stale = [(item, stamp.staleness(item, wanted[item.name])) for item in environments]
            if rebuild:
                stale = [(item, stamp.Staleness("asked for", anew=True)) for item, _ in stale]
            needed = [(item, why) for item, why in stale if why is not None]
            make(needed, python, tool.Runner(handle), mirror)
    states = []
    for item in environments:
        for name in item.sources:
            verify(name)
        made = stamp.read(item)
        if made is None:
            raise VerificationError(
                f"environment {item.name} vanished while it was made", "", f"eval/scripts/setup {item.name}"
            )
        states.append(made.state)
    return states


def demanded(environment: Environment, python: str | None) -> str | None:
    """The resolved path of the one Python that an environment must be made with; None when any will do."""
    narrow = (environment.lowest, environment.highest) != (LOWEST, HIGHEST)
    if python is None and (narrow or not os.environ.get("ASSAY_PYTHON")):
        return None
    return find(python, (), environment.lowest, environment.highest).path


def make(
    stale: Sequence[tuple[Environment, stamp.Staleness]],
    asked: str | None,
    runner: tool.Runner,
    mirror: Mirror | None,
) -> None:
    """Check the machine, obtain sources and installer, and make each environment.

    What cannot be made keeps none of the others from being made; the first problem is raised at the end.
    """
    if not stale:
        return
    for environment, why in stale:
        owned_directory(environment.directory)
        verb = "is made" if why.anew else "is brought up to date"
        say(f"assay: environment {environment.name} ({relative(environment.directory)}) {verb}: {why.reason}")
    known = stamp.known_interpreters(ENVIRONMENTS)
    problems: list[BaseException | None] = []
    works = []
    with step("looking at the machine"):
        for item, why in stale:
            try:
                works.append(Work(item, why, find(asked, known, item.lowest, item.highest)))
            except AssayError as error:
                problems.append(error)
        compiler = preflight(works) if works else None
    ready = []
    for work in works:
        try:
            # One after the other, since two environments may take packages from one source.
            fetch_all(work.environment.sources, mirror, runner)
            ready.append(work)
        except AssayError as error:
            problems.append(error)
    if ready:
        uv = tool.obtain(ready[0].interpreter, runner)
        with ThreadPoolExecutor(len(ready)) as pool:
            futures = [pool.submit(make_one, work, uv, compiler, runner) for work in ready]
            try:
                # If one fails the others still end as they should: what they fetch is kept.
                problems += [future.exception() for future in futures]
            except KeyboardInterrupt:
                runner.end()
                raise
    for problem in problems:
        if problem is not None:
            raise problem


def preflight(works: Iterable[Work]) -> str | None:
    """Find out in a second what would fail after minutes.

    Returns:
        The C compiler, if builds must be told of it since the interpreter's own is not there.
    """
    interpreters = {work.interpreter.path: work.interpreter for work in works}
    for interpreter in interpreters.values():
        say(f"assay: Python {interpreter.release} at {interpreter.path}, with its headers")
    compilers = [machine.c_compiler(interpreter) for interpreter in interpreters.values()]
    need = sum(work.environment.need_bytes for work in works if work.why.anew)
    findings = [*compilers, machine.cxx_compiler(), machine.git(), machine.disk(need)]
    machine.require(findings)
    say("assay: " + "; ".join(f"{item.name}: {item.detail}" for item in findings))
    own = {shutil.which(interpreter.cc) for interpreter in interpreters.values()}
    return compilers[0].detail if None in own and "CC" not in os.environ else None


def make_one(work: Work, uv: tool.Uv, compiler: str | None, runner: tool.Runner) -> None:
    """Make or update one environment; its stamp is gone until it is whole."""
    environment = work.environment
    begin = time.monotonic()
    made_from = stamp.inputs(environment)
    anew = work.why.anew
    environment.stamp.unlink(missing_ok=True)
    if anew and any(environment.directory.iterdir()):
        with step(f"{environment.name}: removing what is there"):
            clear(environment.directory)
    variables = guarded(tool.child_environment()) | {"PYTHONDONTWRITEBYTECODE": "1"}
    if compiler is not None:
        variables["CC"] = compiler
    install(environment, work.interpreter, uv, variables, runner, anew)
    metadata.require_installed(environment)
    if environment.sources and environment.programs:
        with step(f"{environment.name}: the programs it gives to the sandbox, against their digests"):
            verify_programs(environment)
    with step(f"{environment.name}: sealing what was installed"):
        compared = compare(environment, None)
        require_none(environment, compared.differences, f"eval/scripts/setup {environment.name} --rebuild")
        stamp.write(environment, compared.state, made_from, compared.unrecorded)
    packages, seconds = len(compared.state.versions), time.monotonic() - begin
    say(f"assay: environment {environment.name} is ready: {packages} packages, {seconds:.1f} s")


def install(
    environment: Environment,
    interpreter: Interpreter,
    uv: tool.Uv,
    variables: dict[str, str],
    runner: tool.Runner,
    anew: bool,
) -> None:
    """The four steps (and, before them, the empty environment), each said with its seconds."""
    name = environment.name
    again = f"eval/scripts/setup {name}"
    target: list[str | Path] = ["--python", environment.python]

    def uv_step(what: str, *arguments: str | Path) -> None:
        with step(f"{name}: {what}"):
            runner.run([uv.path, *arguments], variables, f"{name}: {what} failed", again)

    if anew:
        uv_step(
            f"an empty environment with Python {interpreter.release}",
            "venv",
            "--no-project",
            "--python",
            interpreter.path,
            environment.directory,
        )
    sync = ["pip", "sync", "--require-hashes", *target]
    uv_step(f"the build group ({relative(environment.build_lock)})", *sync, environment.build_lock)
    uv_step(
        f"the packages, with byte code ({relative(environment.requirements_lock)})",
        *sync,
        "--no-build-isolation",
        "--compile-bytecode",
        environment.requirements_lock,
    )
    if environment.editables:
        with step(f"{name}: do the pinned sources build what was recorded?"):
            metadata.require_built(environment, runner, variables)
    editable: list[str | Path] = []
    for project in (*environment.projects, *(item.directory for item in environment.editables)):
        editable += ["--editable", project]
    if editable:
        uv_step(
            "the checkout's own packages and those of pinned sources, editable",
            "pip",
            "install",
            "--no-deps",
            "--no-build-isolation",
            "--offline",
            *target,
            *editable,
        )
    consistent = "are the packages consistent?"
    if environment.absent:
        with step(f"{name}: {consistent}"):
            require_consistent(environment, runner, variables)
    else:
        uv_step(consistent, "pip", "check", *target)


def clear(directory: Path) -> None:
    """Empty an owned directory; a link inside it is removed, never followed."""
    try:
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()
    except OSError as error:
        raise PrerequisiteError(
            f"{relative(directory)} cannot be emptied", str(error), f"rm -rf {relative(directory)}"
        ) from error


def stop_on_sigterm() -> None:
    """Let SIGTERM end a set-up as Ctrl-C does: children ended, the unfinished environment left unstamped."""

    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, handler)
