"""The host runtime's stand-in for the image: the same programs, locks and wheels in a run's private home.

Without Docker, Verifiers prepares its programs below HOME with the `uv` it finds, and would resolve them
anew against the package index. Here the home is given uv, each program's native lock (held against the same
pins as for the image) and a cache that has every wheel, so that it installs what is pinned and asks nobody.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from assay import pinset
from assay.digest import combined_digest, sha256_file, tree_digests, value_digest
from assay.errors import PrerequisiteError, VerificationError
from assay.evaluator import load_evaluator
from assay.files import read_json, write_json_atomic
from assay.paths import owned_directory, relative
from assay.sandbox.images import load_images, load_programs, runtime_file
from assay.sandbox.programs import export, lock
from assay.sandbox.record import folder
from assay.sandbox.turn import turn
from assay.sandbox.uv import find_uv
from assay.sandbox.wheels import copy_cache, wheel_cache

SCRIPTS = Path(".cache/verifiers/runtimes/scripts")
"""Where Verifiers keeps programs on the host, below HOME."""


def prepare_host(home: Path, evaluator: str, runtime: Path | None = None) -> dict[str, str]:
    """Give a run's private home what the host runtime needs.

    Args:
        home: The HOME that the native command will have; a directory of this run alone. A second call for
            the same home changes nothing.
        evaluator: Whose programs they are.
        runtime: Where the pins are.

    Returns:
        Variables that the native command must be given, over its others; none when no program is pinned.

    Raises:
        PrerequisiteError: uv or the evaluator's environment is missing, or the package index does not answer
            and the wheels are not there yet.
        VerificationError: a program, its lock or a wheel is not the pinned one.
    """
    if not load_programs(evaluator):
        return {}
    store = folder() / "host" / pinset.current().name / evaluator
    with turn(folder()):
        ready = prepared(store, evaluator, runtime)
    scripts = home / SCRIPTS
    scripts.mkdir(parents=True, exist_ok=True)
    for path in (ready / "programs").iterdir():
        shutil.copyfile(path, scripts / path.name)
    uv = home / ".local" / "bin" / "uv"
    uv.parent.mkdir(parents=True, exist_ok=True)
    if not uv.is_symlink():
        uv.symlink_to(find_uv())
    cache = home / ".cache" / "uv"
    if not cache.exists():
        pin, version = load_images(runtime).uv, python_version(evaluator)
        for program in load_programs(evaluator):
            copy_cache(wheel_cache(runtime_file(f"{program.name}.pins", runtime), pin, version), cache)
    return {
        "UV_CACHE_DIR": str(cache),
        "UV_PYTHON": str(load_evaluator(evaluator).binaries / "python"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "copy",
        "UV_LOCKED": "true",
        "UV_COMPILE_BYTECODE": "1",
    }


def prepared(store: Path, evaluator: str, runtime: Path | None) -> Path:
    """The store of programs and their locks, made anew for a new recipe; VerificationError if edited."""
    programs = load_programs(evaluator)
    parts = {
        **{f"program {program.name}": program.sha256 for program in programs},
        **{
            f"{program.name}.pins": sha256_file(runtime_file(f"{program.name}.pins", runtime))
            for program in programs
        },
    }
    stamp = store / "stamp.json"
    if stamp.is_file():
        known = read_json(stamp)
        if known["recipe"] == parts:
            if known["digest"] != combined_digest(tree_digests(store / "programs")):
                raise VerificationError(
                    f"{relative(store / 'programs')} was changed since it was made",
                    "the host runtime would run other programs",
                    f"rm -r {relative(store)}, then run again",
                )
            return store
    shutil.rmtree(store, ignore_errors=True)
    owned_directory(store / "programs")
    sources = export(programs, evaluator)
    for program in programs:
        lock(program, sources[program.name], store / "programs", runtime)
    digest = combined_digest(tree_digests(store / "programs"))
    write_json_atomic(stamp, {"recipe": parts, "recipe_digest": value_digest(parts), "digest": digest})
    return store


def python_version(evaluator: str) -> str:
    """Major and minor version of the evaluator environment's Python; PrerequisiteError without one."""
    path = load_evaluator(evaluator).binaries.parent / "pyvenv.cfg"
    try:
        found = re.search(r"^version(?:_info)? *= *(\d+\.\d+)", path.read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        raise PrerequisiteError(f"{relative(path)} is missing or names no version", "", "eval/scripts/setup")
    return found[1]
