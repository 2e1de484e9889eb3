"""The stamp: written last, it says that an environment is whole and from what it was made.

A repeat run reads it, hashes three small files and goes on. Without it, or when it was made from something
else, the environment is not trusted, whatever lies in its directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.digest import canonical_json, sha256_bytes, sha256_file, value_digest
from assay.files import write_atomic, write_json_atomic
from assay.paths import relative
from assay.setup import tool
from assay.setup.environments import Environment, EnvironmentState
from assay.sources import load_lock

SCHEMA = "assay/environment/v1"


@dataclass(frozen=True)
class Stamp:
    """A whole environment: its state, what it was made from, and where.

    `inputs` are digests of the locks and of each project's pyproject.toml, and each source's revision;
    `python_size` and `python_mtime_ns` notice a replaced interpreter without reading it.
    """

    directory: str
    inputs: Mapping[str, str]
    python_size: int
    python_mtime_ns: int
    seal_sha256: str
    state: EnvironmentState


@dataclass(frozen=True)
class Staleness:
    """Why an environment cannot be used as it is; whether it must be made anew or only brought up to date."""

    reason: str
    anew: bool


def inputs(environment: Environment) -> dict[str, str]:
    """What the environment is made from: digests of locks and projects, and the revision of each source.

    OSError when a file is missing.
    """
    projects = [project / "pyproject.toml" for project in environment.projects]
    found = locks(environment) | {relative(path): sha256_file(path) for path in dict.fromkeys(projects)}
    if environment.sources:
        lock = load_lock()
        found |= {f"source {name}": lock.source(name).revision for name in environment.sources}
    if environment.editables:
        found["editables"] = value_digest([asdict(item) for item in environment.editables])
    if environment.absent:
        found["absent"] = value_digest(sorted(environment.absent))
    return found


def write(
    environment: Environment, state: EnvironmentState, made_from: Mapping[str, str], seal: Mapping[str, str]
) -> None:
    """Write the seal, then the stamp; after this call the environment is whole."""
    text = canonical_json(dict(seal))
    write_atomic(environment.seal, text)
    found = Path(state.python_path).stat()
    stamp = Stamp(
        str(environment.directory), made_from, found.st_size, found.st_mtime_ns, sha256_bytes(text), state
    )
    write_json_atomic(environment.stamp, {"schema": SCHEMA, **asdict(stamp)})


def read(environment: Environment) -> Stamp | None:
    """The environment's stamp; None when there is none that can be used."""
    try:
        value: dict[str, Any] = json.loads(environment.stamp.read_bytes())
        if value.pop("schema") != SCHEMA:
            return None
        return Stamp(**{**value, "state": EnvironmentState(**value["state"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def staleness(environment: Environment, python: str | None = None) -> Staleness | None:
    """Why the environment must be made or updated; None when it is whole and up to date.

    Args:
        environment: The environment.
        python: The resolved path of the interpreter it must be made with, or None for any.
    """
    stamp = read(environment)
    if stamp is None:
        there = environment.directory.is_dir() and any(environment.directory.iterdir())
        return Staleness("a set-up was interrupted" if there else "it does not exist yet", anew=True)
    if stamp.directory != str(environment.directory):
        return Staleness(f"it was made at {stamp.directory}", anew=True)
    if python is not None and python != stamp.state.python_path:
        return Staleness(f"it was made with {stamp.state.python_path}", anew=True)
    try:
        found = environment.python.stat()
    except OSError:
        return Staleness(f"its interpreter {stamp.state.python_path} is gone", anew=True)
    if (found.st_size, found.st_mtime_ns) != (stamp.python_size, stamp.python_mtime_ns):
        return Staleness(f"its interpreter {stamp.state.python_path} was replaced", anew=True)
    if stamp.state.uv_version != tool.VERSION:
        return Staleness(f"it was made with uv {stamp.state.uv_version}", anew=True)
    now = inputs(environment)
    changed = sorted(
        path for path in now.keys() | stamp.inputs.keys() if now.get(path) != stamp.inputs.get(path)
    )
    if changed:
        return Staleness(f"{', '.join(changed)} changed", anew=False)
    for name in environment.sources:
        if not load_lock().source(name).path.exists():
            return Staleness(f"the source {name} is not here", anew=False)
    return None


def known_interpreters(environments: Mapping[str, Environment]) -> list[str]:
    """Interpreters that whole environments of the checkout were made with, each once."""
    stamps = [read(environment) for environment in environments.values()]
    return list(dict.fromkeys(stamp.state.python_path for stamp in stamps if stamp is not None))


def locks(environment: Environment) -> dict[str, str]:
    """Digests of the two locks alone, by file name: where they lie decides nothing of what they lock."""
    return {path.name: sha256_file(path) for path in (environment.build_lock, environment.requirements_lock)}
