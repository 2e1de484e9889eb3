"""`provenance/`: what a run was made from, copied or named by digest while the inputs still stand.

Files that pin something are copied whole, so that an auditor needs no checkout to read them; everything else
is named by digest. Nothing here holds a secret.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay import __version__, sandbox, sources
from assay.evaluator import load_evaluator
from assay.files import write_atomic, write_json_atomic
from assay.paths import relative
from assay.plan import Plan
from assay.record.sample import TaskPlan
from assay.run.declared import Declared
from assay.run.freeze import lock_files
from assay.run.identity import Identity
from assay.run.route import Routed
from assay.run.worktree import Worktree
from assay.setup import installed_uv
from assay.shell import judge, read_lock
from assay.tools import program, programs, python_digest

FOLDER = "provenance"
DECLARED = "declared.json"
SOURCES = "sources.json"
INPUTS_SCHEMA = "assay/inputs/v1"


def folder(run: Path) -> Path:
    """The provenance folder of a run, made if need be."""
    path = run / FOLDER
    path.mkdir(exist_ok=True)
    return path


def launch_folder(run: Path, name: str) -> Path:
    """Where what a native invocation was given is recorded."""
    return folder(run) / "launch" / name


def record_inputs(run: Path, when: str, inputs: Mapping[str, str]) -> None:
    """Write the frozen inputs as they were "before", or "after" an entry."""
    write_json_atomic(
        folder(run) / f"inputs.{when}.json", {"schema_version": INPUTS_SCHEMA, "inputs": dict(inputs)}
    )


def record_files(run: Path, plan: Plan) -> None:
    """Copy the files that pin the run's environment, model and sandbox."""
    for path in lock_files(plan.evaluator):
        target = folder(run) / "pins" / relative(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, path.read_bytes())


def record_sources(run: Path, names: Sequence[str], inputs: Mapping[str, str]) -> None:
    """Write which revision of which repository each frozen source is; nothing where there is none.

    Args:
        run: The run directory.
        names: The evaluator's sources.
        inputs: The frozen inputs, in which each has just been verified.
    """
    if not names:
        return
    lock = sources.load_lock()
    value = {
        name: {
            "repository": lock.source(name).repository,
            "revision": lock.source(name).revision,
            "digest": inputs[f"source:{name}"],
        }
        for name in names
    }
    write_json_atomic(folder(run) / SOURCES, value)


def record_worktree(run: Path, worktree: Worktree) -> None:
    """Write what git said of the checkout."""
    write_json_atomic(folder(run) / "worktree.json", worktree.model_dump(mode="json"))


def record_tasks(run: Path, entry: str, tasks: TaskPlan) -> None:
    """Write what the taskset said it would ask."""
    path = folder(run) / "tasks"
    path.mkdir(exist_ok=True)
    write_json_atomic(path / f"{entry}.json", tasks.model_dump(mode="json"))


def record_launch(
    launch: Path,
    words: Sequence[str],
    variables: Mapping[str, str],
    key_variable: str,
    working_directory: Path,
    routed: Routed,
) -> None:
    """Write how the evaluator is started: its command, and its environment but for the key.

    Args:
        launch: The folder of its launch files.
        words: The native command.
        variables: Its environment without the key.
        key_variable: Where the key is: the name alone.
        working_directory: Where it runs.
        routed: How its taskset finds its data.
    """
    value = {
        "command": list(words),
        "variables": sorted([*variables, key_variable]),
        "environment": dict(sorted(variables.items())),
        "key_variable": key_variable,
        "working_directory": str(working_directory),
    }
    write_json_atomic(launch / "command.json", value)
    write_json_atomic(launch / "route.json", routed.describe())


def record_containers(run: Path, part: str, found: Mapping[str, Any]) -> None:
    """Write what the containers of a native invocation were held to, and what became of them."""
    path = folder(run) / "containers" / f"{part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, found)


def record_server(run: Path, entry: str, when: str, identity: Identity) -> None:
    """Write who the server was "before" or "after" an entry, and in which container."""
    path = folder(run) / "server"
    path.mkdir(exist_ok=True)
    write_json_atomic(path / f"{entry}.{when}.json", identity.describe())


def record_declared(run: Path, declared: Declared) -> None:
    """Write what the operator says of the server."""
    write_json_atomic(folder(run) / DECLARED, declared.describe())


def record_environment(run: Path, plan: Plan) -> None:
    """Write what machine, shell and tools the run had."""
    value: dict[str, Any] = {
        **machine(),
        "evaluator_python": interpreter(load_evaluator(plan.evaluator).binaries / "python"),
        "runtime": plan.runtime,
        "egress": plan.egress,
    }
    if plan.runtime == "docker":
        engine = sandbox.engine()
        value["docker"] = None if engine is None else engine.describe()
        write_json_atomic(folder(run) / "sandbox.json", sandbox.check(plan.evaluator).describe())
    write_json_atomic(folder(run) / "environment.json", value)


def record_machine(run: Path) -> None:
    """Write what machine, shell and tools a suite's run had; its jobs' environments are frozen inputs."""
    write_json_atomic(folder(run) / "environment.json", machine())


def machine() -> dict[str, Any]:
    """What machine this is, and which shell and tools the command has."""
    tools = programs(installed_uv())
    shell = judge({**tools, "python": program("python", sys.executable)}, lock=read_lock())
    return {
        "assay": __version__,
        "kind": shell.kind,
        "shell": shell.describe(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "processor": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": interpreter(Path(sys.executable)),
        "tools": {name: found.describe() if found else None for name, found in tools.items()},
    }


def interpreter(python: Path) -> dict[str, str | None] | None:
    """An environment's interpreter as a record has it; None when it is not there.

    Its `digest` covers the program and, where it has one, its shared library.
    """
    found = program("python", python)
    return None if found is None else {**found.describe(), "digest": python_digest(Path(found.path))[1]}


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
