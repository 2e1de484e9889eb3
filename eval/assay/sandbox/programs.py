"""The evaluator's PEP 723 programs: taken out of its environment, locked, held against committed pins.

Their dependencies are named without versions, so what a harness runs would drift with the package index.
`runtime/<program>.pins` fixes them: the native lock is made at build time starting from the pins' versions,
and what it then holds (name, version, marker, every digest) must be the pins, line by line, or the build
fails and names the lines. No address stands in the pins; the native lock, which has them, stays in `.assay`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.errors import VerificationError
from assay.evaluator import Program, load_evaluator
from assay.paths import relative
from assay.sandbox.images import runtime_file
from assay.sandbox.uv import run_uv
from assay.setup.programs import read_file, read_objects, require_program

METADATA_END = "# ///\n"
SHOWN_DIFFERENCES = 12


def export(programs: Sequence[Program], evaluator: str) -> dict[str, str]:
    """Each program's source by its name, as the evaluator's environment or its pinned sources have it.

    Raises:
        PrerequisiteError: the environment or a source is missing or does not hold the program.
        VerificationError: a program's digest is not the pinned one.
    """
    objects = [program.object for program in programs if program.object]
    sources = read_objects(load_evaluator(evaluator).binaries / "python", objects) if objects else {}
    sources |= {program.file: read_file(program.file) for program in programs if program.file}
    verify_sources(programs, sources)
    return {program.name: sources[program.place] for program in programs}


def verify_sources(programs: Sequence[Program], sources: Mapping[str, str]) -> None:
    """VerificationError unless every source, by its place, has the pinned digest."""
    for program in programs:
        require_program(program.name, program.place, sources[program.place], program.sha256)


def lock(program: Program, source: str, folder: Path, runtime: Path | None = None) -> Path:
    """Write the program as `<sha256>.py` into the folder and lock it natively, from the pins' versions.

    Args:
        program: The program.
        source: Its source.
        folder: Where program and lock go; a working folder of the build.
        runtime: Where the pins are.

    Returns:
        The program's path; its lock lies beside it, with `.lock` appended.

    Raises:
        PrerequisiteError: the package index cannot be reached, or lacks a pinned version.
        VerificationError: the lock does not hold what the pins name.
    """
    path = folder / f"{program.sha256}.py"
    native = path.with_name(path.name + ".lock")
    path.write_text(constrained(source, pinned_versions(program, runtime)), "utf-8")
    run_uv("lock", "--script", path, "--no-config", "--quiet")
    # A lock under the program's own metadata, which prefers the versions that are there already.
    lock_natively(path, source)
    compare(program, exported(path), runtime)
    native.chmod(0o644)
    return path


def lock_natively(path: Path, source: str) -> None:
    """Write the program and let uv lock it under its own metadata, from the lock that is there, if one is."""
    path.write_text(source, "utf-8")
    run_uv("lock", "--script", path, "--no-config", "--quiet")


def exported(path: Path) -> str:
    """What a program's native lock holds, in the form of the pins: hashes and markers, no addresses."""
    words = ("--frozen", "--no-header", "--no-annotate", "--no-config", "--quiet")
    return run_uv("export", "--script", path, *words)


def compare(program: Program, found: str, runtime: Path | None = None) -> None:
    """VerificationError, naming the lines, unless a lock holds exactly what the program's pins name."""
    path = runtime_file(f"{program.name}.pins", runtime)
    pinned = path.read_text("utf-8")
    if pinned == found:
        return
    lines = difflib.unified_diff(pinned.splitlines(), found.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    more = (
        f"\n        and {len(changed) - SHOWN_DIFFERENCES} more" if len(changed) > SHOWN_DIFFERENCES else ""
    )
    raise VerificationError(
        f"the lock of the program {program.name} is not what {relative(path)} pins",
        "\n        ".join(["pinned (-), locked now (+):", *changed[:SHOWN_DIFFERENCES]]) + more,
        f"git checkout {relative(path)}, or look at what the index changed and commit new pins",
    )


def pinned_versions(program: Program, runtime: Path | None = None) -> list[str]:
    """The pins as requirements with versions and markers, without digests.

    Raises:
        VerificationError: there are no pins for the program.
    """
    path = runtime_file(f"{program.name}.pins", runtime)
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise VerificationError(
            f"the program {program.name} has no pins at {relative(path)}", str(error), "git status"
        ) from error
    return [line.removesuffix("\\").strip() for line in lines if line and not line.startswith((" ", "#"))]


def constrained(source: str, versions: Sequence[str]) -> str:
    """The program with constraints in its PEP 723 metadata, for the first of the two lockings only."""
    start, end, rest = source.partition(METADATA_END)
    wanted = json.dumps(list(versions))
    return f"{start}# [tool.uv]\n# constraint-dependencies = {wanted}\n{end}{rest}"
