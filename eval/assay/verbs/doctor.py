"""`assay doctor`: what this machine and this checkout have and lack, in one table; nothing is changed."""

from __future__ import annotations

import argparse
import logging
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from assay import equipment, pinset
from assay.cli import answer, shared
from assay.equipment import Tool
from assay.errors import AssayError
from assay.models import pins
from assay.paths import relative
from assay.setup import ENVIRONMENTS, machine, stamp, tool
from assay.setup.machine import Finding
from assay.shell import ENTER, Shell, judge, read_lock
from assay.tools import Program, program, programs

logger = logging.getLogger(__name__)

ISA_FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")
WORDS = {True: "ok", False: "not yet"}


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "doctor",
        parents=[shared()],
        help="what this machine has and lacks",
        description="Look at everything Assay needs or can use: each tool with version, path and whether a "
        "lock names its bytes, the shell, the environments, the models. Say what is missing, and what to "
        "type for it. Changes nothing.",
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Print the table; 3 when something that Assay cannot do without is missing."""
    interpreter, error = equipment.interpreter()
    there = programs(tool.installed())
    there["python"] = program("python", interpreter.path) if interpreter else None
    shell = judge(there, lock=read_lock())
    tools = list(equipment.survey(shell, there, interpreter, error))
    wanted = [item for item in ENVIRONMENTS.values() if not item.aside and stamp.staleness(item)]
    room = machine.disk(sum(item.need_bytes for item in wanted))
    found = [room, *environments(), *sources(), *models(), *task_data(), docker(), processor()]
    findings = [replace(item, remedy=pinset.typed(item.remedy)) for item in found]
    show_shell(shell)
    show_tools(tools)
    show_findings(findings)
    lacking = [item.name for item in tools if item.needed and not item.usable]
    lacking += [] if room.usable else [room.name]
    if arguments.json:
        answer(
            {
                "status": "lacking" if lacking else "ok",
                "lacking": lacking,
                "shell": shell.describe(),
                "tools": [item.describe() for item in tools],
                "findings": [asdict(item) for item in findings],
            }
        )
    return 3 if lacking else 0


def show_shell(shell: Shell) -> None:
    """Say what shell this is, and what keeps it from being the pinned one."""
    if shell.pinned:
        print(f"shell: nix ({shell.name}), nixpkgs {shell.locked_rev}, as flake.lock names it")
        return
    words = {
        "host": "the machine's own programs",
        "nix-override": f"{shell.name}, but not the one that flake.lock names",
    }
    print(f"shell: {shell.kind}: {words[shell.kind]}")
    for reason in shell.why:
        print(f"  {reason}")
    print(f"  -> {ENTER}")


def show_tools(tools: Sequence[Tool]) -> None:
    """Print each tool with version, lock and path; under one that is missing, what to type."""
    names = max(len(item.name) for item in tools)
    versions = max(len(item.program.version or "") if item.program else 0 for item in tools)
    locks = max(len(item.pinned_by or "not pinned") for item in tools)
    for item in tools:
        word = "LACKS" if item.needed and not item.usable else WORDS[item.usable]
        start = f"{word:<8}{item.name:<{names + 2}}"
        if item.usable and item.program is not None:
            lock = item.pinned_by or "not pinned"
            print(f"{start}{item.program.version:<{versions + 2}}{lock:<{locks + 2}}{place(item.program)}")
        else:
            print(f"{start}{item.problem}; for: {item.purpose}")
            print(f"{'':<{names + 10}}-> {item.remedy}")


def place(found: Program) -> str:
    """Where a program lies; what PATH says too, where a link leads elsewhere."""
    name, path = relative(Path(found.found)), relative(Path(found.path))
    return path if name == path else f"{name} -> {path}"


def show_findings(findings: Sequence[Finding]) -> None:
    """Print what else was looked at; under what is not there yet, what to type."""
    width = max(len(item.name) for item in findings)
    for item in findings:
        print(f"{WORDS[item.usable]:<8}{item.name:<{width + 2}}{item.detail}")
        if not item.usable and item.remedy:
            print(f"{'':<{width + 10}}-> {item.remedy}")


def environments() -> Iterator[Finding]:
    """Each environment: whole, or why not."""
    for item in ENVIRONMENTS.values():
        stale = stamp.staleness(item)
        name = f"environment {item.name}"
        if stale is None:
            detail = f"{relative(item.directory)}, whole (every byte: eval/scripts/setup --check)"
            yield Finding(name, True, detail)
        else:
            yield Finding(name, False, stale.reason, f"eval/scripts/setup {item.name}")


def sources() -> Iterator[Finding]:
    """Each upstream source that some environment takes packages from: whether there is a checkout of it."""
    users: dict[str, list[str]] = {}
    for item in ENVIRONMENTS.values():
        for name in item.sources:
            users.setdefault(name, []).append(item.name)
    for name, names in users.items():
        path = pinset.current().sources / name
        detail = (
            f"{relative(path)} (every byte: eval/scripts/setup --check)" if path.is_dir() else "not fetched"
        )
        yield Finding(f"source {name}", path.is_dir(), detail, f"eval/scripts/setup {' '.join(names)}")


def models() -> Iterator[Finding]:
    """Each pinned model: whether a file of its size is here."""
    for pin in pins().values():
        here = pin.path.is_file() and pin.path.stat().st_size == pin.size_bytes
        detail = relative(pin.path) if here else "not fetched"
        yield Finding(f"model {pin.name}", here, detail, f"assay model fetch {pin.name}")


def task_data() -> Iterator[Finding]:
    """Each pinned dataset: whether all its files are here with their sizes."""
    try:
        from assay.data import datasets
        from assay.data.pins import amount, command
    except ImportError as error:
        detail = f"looked for once environment assay is set up ({error})"
        yield Finding("task data", False, detail, "eval/scripts/setup assay")
        return
    for item in datasets().values():
        folder = pinset.current().data / item.folder
        places = [(folder / file.path, file.size_bytes) for file in item.files]
        here = all(path.is_file() and path.stat().st_size == size for path, size in places)
        size = amount(item.size_bytes)
        detail = f"{size} (every byte: {command(f'--check {item.name}')})" if here else f"not fetched: {size}"
        yield Finding(f"task data {item.name}", here, detail, command(item.name))


def docker() -> Finding:
    """The Docker engine; without one only `demo` can run, on the host."""
    name = "Docker engine"
    try:
        from assay.sandbox import engine
    except ImportError as error:
        logger.debug("the sandbox cannot be asked", exc_info=True)
        detail = f"asked once environment assay is set up ({error})"
        return Finding(name, False, detail, "eval/scripts/setup assay")
    remedy = "apt-get install docker.io, and start dockerd; without it only demo runs, on the host runtime"
    try:
        found = engine()
    except AssayError as error:
        return Finding(name, False, str(error), remedy)
    if found is None:
        return Finding(name, False, "none answers", remedy)
    return Finding(name, True, f"{found.server_version} ({found.storage_driver}) at {found.host}")


def processor() -> Finding:
    """The processor, and which of the instruction sets that matter it has."""
    name, flags = platform.machine(), set[str]()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text("utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    present = [flag for flag in ISA_FLAGS if flag in flags]
    return Finding("processor", True, f"{name}; {', '.join(present) or 'the plain path'}")
