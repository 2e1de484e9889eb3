"""`assay doctor`: what this machine has and lacks, in one table; nothing is changed."""

from __future__ import annotations

import argparse
import logging
import platform
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from assay.bootstrap import Interpreter, find
from assay.cli import answer, shared
from assay.errors import AssayError
from assay.models import pins
from assay.paths import relative
from assay.setup import ENVIRONMENTS, machine, stamp, tool
from assay.setup.machine import Finding

logger = logging.getLogger(__name__)

NEEDED = ("Python", "C compiler", "C++ compiler", "Git", "disk")
ISA_FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "doctor",
        parents=[shared()],
        help="what this machine has and lacks",
        description="Look at everything Assay needs or can use, and say what is missing. Changes nothing.",
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Print the table; 3 when something that Assay cannot do without is missing."""
    findings = [*necessities(), *environments(), *models(), docker(), processor()]
    width = max(len(item.name) for item in findings)
    for item in findings:
        word = "ok" if item.usable else ("LACKS" if item.name in NEEDED else "not yet")
        print(f"{word:<8}{item.name:<{width + 2}}{item.detail}")
        if not item.usable and item.remedy:
            print(f"{'':<{width + 10}}-> {item.remedy}")
    lacking = [item.name for item in findings if not item.usable and item.name in NEEDED]
    if arguments.json:
        status = "lacking" if lacking else "ok"
        answer({"status": status, "lacking": lacking, "findings": [asdict(item) for item in findings]})
    return 3 if lacking else 0


def necessities() -> Iterator[Finding]:
    """Python with its headers, compilers, Git and the space for what is not set up yet."""
    interpreter: Interpreter | None = None
    try:
        interpreter = find(known=stamp.known_interpreters(ENVIRONMENTS))
        yield Finding("Python", True, f"{interpreter.release} at {interpreter.path}, with its headers")
    except AssayError as error:
        yield Finding("Python", False, f"{error.what}; {error.why}", error.next)
    if interpreter is not None:
        yield machine.c_compiler(interpreter)
    yield machine.cxx_compiler()
    yield machine.git()
    yield machine.disk(sum(item.need_bytes for item in ENVIRONMENTS.values() if stamp.staleness(item)))


def environments() -> Iterator[Finding]:
    """The installer, and each environment: whole, or why not."""
    try:
        yield Finding(f"uv {tool.VERSION}", True, relative(tool.existing().path))
    except AssayError as error:
        yield Finding(f"uv {tool.VERSION}", False, error.what, error.next)
    for item in ENVIRONMENTS.values():
        stale = stamp.staleness(item)
        name = f"environment {item.name}"
        if stale is None:
            yield Finding(
                name, True, f"{relative(item.directory)}, whole (every byte: eval/scripts/setup --check)"
            )
        else:
            yield Finding(name, False, stale.reason, f"eval/scripts/setup {item.name}")


def models() -> Iterator[Finding]:
    """Each pinned model: whether a file of its size is here."""
    for pin in pins().values():
        here = pin.path.is_file() and pin.path.stat().st_size == pin.size_bytes
        detail = relative(pin.path) if here else "not fetched"
        yield Finding(f"model {pin.name}", here, detail, f"assay model fetch {pin.name}")


def docker() -> Finding:
    """The Docker engine and its client; without one only `demo` can run, on the host."""
    remedy = "apt-get install docker.io, and start dockerd; without it only demo runs, on the host runtime"
    try:
        from assay.sandbox import engine

        found = engine()
    except (AssayError, ImportError) as error:
        logger.debug("the sandbox cannot be asked", exc_info=True)
        return Finding("Docker engine", False, str(error), remedy)
    if found is None:
        return Finding("Docker engine", False, "none answers", remedy)
    return Finding(
        "Docker engine", True, f"{found.server_version} ({found.storage_driver}), client {found.client_path}"
    )


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
