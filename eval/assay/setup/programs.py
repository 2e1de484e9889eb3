"""The programs that harnesses start in the sandbox, taken out of an environment or a pinned source.

It needs nothing but the standard library here; the environment's own Python is asked for what it holds.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.digest import sha256_bytes
from assay.errors import ConfigurationError, PrerequisiteError, VerificationError
from assay.paths import relative
from assay.setup.environments import Environment
from assay.sources import load_lock

EXPORT = """
import importlib, json, sys
found = {}
for reference in sys.argv[1:]:
    module, _, attribute = reference.partition(":")
    found[reference] = getattr(importlib.import_module(module), attribute)
json.dump(found, sys.stdout)
"""


def verify_programs(environment: Environment) -> dict[str, str]:
    """Hold each program of the environment's evaluator against its digest; returns the digests by name.

    Raises:
        ConfigurationError: a program has no digest.
        PrerequisiteError: the environment or a source does not hold one.
        VerificationError: one is not the pinned one.
    """
    objects = [item.place for item in environment.programs if not item.is_file]
    sources = read_objects(environment.python, objects) if objects else {}
    digests = {}
    for item in environment.programs:
        pinned = item.sha256 or load_lock().program(environment.name, item.name)
        if pinned is None:
            raise ConfigurationError(
                f"the program {item.name} of {environment.name} has no digest", "", "git status"
            )
        text = read_file(item.place) if item.is_file else sources[item.place]
        digests[item.name] = require_program(item.name, item.place, text, pinned)
    return digests


def require_program(name: str, place: str, text: str, pinned: str) -> str:
    """The digest of a program's source; VerificationError when it is not the pinned one."""
    found = sha256_bytes(text.encode("utf-8"))
    if found != pinned:
        raise VerificationError(
            f"the program {name} ({place}) is not the pinned one",
            f"its SHA-256 is {found}, pinned is {pinned}",
            "eval/scripts/setup --check says whether the environment was changed",
        )
    return found


def read_file(place: str) -> str:
    """The text of a file of a pinned source, named as `source:path`; PrerequisiteError when there is none."""
    name, _, path = place.partition(":")
    file = load_lock().source(name).path / path
    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PrerequisiteError(
            f"the source {name} does not hold {path}", str(error), "eval/scripts/setup --sources-only"
        ) from error


def read_objects(python: Path, references: Sequence[str]) -> dict[str, str]:
    """The values of `module:attribute` references, as an environment's Python has them.

    Raises:
        PrerequisiteError: the environment is missing or does not hold one.
    """
    words: list[str | Path] = [python, "-c", EXPORT, *references]
    environment = {
        "PATH": os.defpath,
        "HOME": os.devnull,  # what is imported can make nothing below it, as root neither
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise PrerequisiteError(
            f"the evaluator's environment is missing: {relative(python)}", str(error), "eval/scripts/setup"
        ) from error
    if done.returncode != 0:
        raise PrerequisiteError(
            "the evaluator's environment does not give its programs",
            done.stderr.strip().rpartition("\n")[2],
            "eval/scripts/setup",
        )
    found: Mapping[str, object] = json.loads(done.stdout)
    return {name: str(text) for name, text in found.items()}
