"""Whether an environment still is what was installed: every file hashed, every version held against the lock.

The result's digest is a frozen input of a run. It is taken over the packages' files as their RECORDs name
them, the editable sources as they are now, and the interpreter; not over files that hold paths of this
machine.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.digest import combined_digest, sha256_bytes, sha256_file, tree_digests, value_digest
from assay.errors import PrerequisiteError, VerificationError
from assay.paths import ROOT, relative
from assay.setup import stamp as stamps
from assay.setup import tool
from assay.setup.environments import Environment, EnvironmentState
from assay.setup.installed import (
    LOCAL_METADATA,
    Difference,
    Distribution,
    differences,
    distributions,
    normalised,
    observe,
    recorded,
)
from assay.sources import verify
from assay.tools import python_digest

SHOWN = 12


def check(environment: Environment) -> EnvironmentState:
    """Hash what is installed and return its state.

    Raises:
        PrerequisiteError: the environment is missing, unfinished, or was made from other locks.
        VerificationError: a file, a version or the interpreter differs; each is named by its path.
    """
    again = f"eval/scripts/setup {environment.name}"
    stale = stamps.staleness(environment)
    stamp = stamps.read(environment)
    if stale is not None or stamp is None:
        reason = stale.reason if stale else "it has no stamp"
        raise PrerequisiteError(f"environment {environment.name} is not set up: {reason}", "", again)
    rebuild = f"{again} --rebuild"
    try:
        text = environment.seal.read_bytes()
    except OSError as error:
        raise VerificationError(
            f"{relative(environment.seal)} cannot be read", str(error), rebuild
        ) from error
    if sha256_bytes(text) != stamp.seal_sha256:
        raise VerificationError(
            f"{relative(environment.seal)} was changed",
            f"it is {sha256_bytes(text)}, but the stamp says {stamp.seal_sha256}",
            rebuild,
        )
    compared = compare(environment, json.loads(text))
    found = [*compared.differences, *since_then(stamp.state, compared.state)]
    require_none(environment, found, rebuild)
    return compared.state


def require(environment: Environment) -> None:
    """Go on only if the environment was made here, whole, from the present locks; nothing is hashed.

    Raises:
        PrerequisiteError: it is missing, unfinished, or was made elsewhere or from other locks.
    """
    stale = stamps.staleness(environment)
    if stale is not None:
        raise PrerequisiteError(
            f"environment {environment.name} is not set up: {stale.reason}",
            "",
            f"eval/scripts/setup {environment.name}",
        )


def since_then(before: EnvironmentState, now: EnvironmentState) -> list[Difference]:
    """The interpreter and the distributions that are not what they were when the set-up ended."""
    found = []
    if now.python_digest != before.python_digest:
        problem = f"has the digest {now.python_digest}, but had {before.python_digest}"
        found.append(Difference("bin/python", problem))
    for name in sorted(before.versions.keys() | now.versions.keys()):
        was, is_now = before.versions.get(name, "not installed"), now.versions.get(name, "not installed")
        if was != is_now:
            found.append(Difference(name, f"is {is_now}, but was {was}"))
    return found


@dataclass(frozen=True)
class Comparison:
    """What is there, where it differs from what it must be, and what no RECORD covers."""

    state: EnvironmentState
    differences: tuple[Difference, ...]
    unrecorded: Mapping[str, str]


def compare(environment: Environment, seal: Mapping[str, str] | None) -> Comparison:
    """Hash what is there and hold it against RECORD files, the seal and the lock.

    Args:
        environment: An environment whose installation is whole.
        seal: Fingerprints of files no RECORD covers; None while the set-up has not taken them yet.
    """
    installed = distributions(environment)
    expected = recorded(installed)
    observed = observe(environment, expected)
    others = {path: value for path, value in observed.items() if path not in expected}
    found = differences(expected, others if seal is None else seal, observed)
    found += version_differences(environment, installed)
    return Comparison(state_of(environment, installed, observed), tuple(found), others)


def state_of(
    environment: Environment, installed: Sequence[Distribution], observed: Mapping[str, str]
) -> EnvironmentState:
    """The environment's state, with its digests over what is really there."""
    packages = {
        path: observed.get(path, "missing")
        for item in installed
        if item.project is None
        for path in item.files
        if portable(environment.directory, path)
    }
    sources = {
        name: digest for project in environment.projects for name, digest in source_digests(project).items()
    }
    sources |= {f"source {name}": verify(name).digest for name in environment.sources}
    python = interpreter_digest(environment)
    release, path, digest = python
    locked = stamps.locks(environment)
    parts = {
        "packages": combined_digest(packages),
        "sources": combined_digest(sources),
        "python": value_digest({"version": release, "sha256": digest}),
    }
    return EnvironmentState(
        name=environment.name,
        directory=str(environment.directory),
        python_version=release,
        python_path=path,
        python_digest=digest,
        uv_version=tool.VERSION,
        locks=locked,
        versions={item.name: item.version for item in installed},
        files=len(observed),
        packages_digest=parts["packages"],
        sources_digest=parts["sources"],
        digest=value_digest(parts),
    )


def portable(root: Path, path: str) -> bool:
    """Whether the file's bytes are the same wherever the checkout lies: no launcher, no installer's note."""
    if path.rpartition("/")[2] in LOCAL_METADATA and ".dist-info/" in path:
        return False
    if not path.startswith("bin/"):
        return True
    try:
        with (root / path).open("rb") as file:
            return file.read(2) != b"#!"
    except OSError:
        return True


def source_digests(project: Path) -> dict[str, str]:
    """Digests of a project's pyproject.toml and of each package it ships, by path from the root."""
    described = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    wheel = described.get("tool", {}).get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    digests = {relative(project / "pyproject.toml"): sha256_file(project / "pyproject.toml")}
    for package in wheel.get("packages", []):
        directory = project / package
        if not directory.is_dir():
            raise VerificationError(f"{relative(directory)} is missing", "its project ships it", "git status")
        digests.update(
            (f"{relative(directory)}/{name}", digest) for name, digest in tree_digests(directory).items()
        )
    return digests


def interpreter_digest(environment: Environment) -> tuple[str, str, str]:
    """The release, the resolved program, and one digest over it and its shared library, if it has one."""
    try:
        program = environment.python.resolve(strict=True)
        release, digest = python_digest(program)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise VerificationError(
            f"{environment.python} does not start",
            str(error),
            f"eval/scripts/setup {environment.name} --rebuild",
        ) from error
    return release, str(program), digest


def locked_versions(environment: Environment) -> dict[str, set[str]]:
    """The versions each lock names, by normalised distribution name (a marker can choose among several)."""
    found: dict[str, set[str]] = {}
    for path in (environment.build_lock, environment.requirements_lock):
        for match in re.finditer(
            r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", path.read_text("utf-8"), re.M
        ):
            found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), set()).add(match[2])
    return found


def version_differences(environment: Environment, installed: Sequence[Distribution]) -> list[Difference]:
    """Distributions that are installed but not locked at that version, or come from another checkout."""
    locked = locked_versions(environment)
    projects = {project.resolve() for project in environment.projects}
    pinned = {normalised(editable.name): editable for editable in environment.editables}
    here = {item.name for item in installed}
    found = [Difference(name, "is pinned, but not installed") for name in sorted(pinned.keys() - here)]
    for item in installed:
        if item.name in pinned:
            editable = pinned[item.name]
            if item.project is None or item.project.resolve() != editable.directory.resolve():
                found.append(Difference(item.name, f"is not installed from {relative(editable.directory)}"))
            elif item.version != editable.version:
                found.append(
                    Difference(item.name, f"{item.version} is installed, pinned is {editable.version}")
                )
        elif item.project is not None:
            if item.project.resolve() not in projects:
                found.append(
                    Difference(item.name, f"is installed from {item.project}, which is not of {ROOT}")
                )
        elif item.version not in locked.get(item.name, set()):
            wanted = " or ".join(sorted(locked.get(item.name, ()))) or "nothing of that name"
            found.append(Difference(item.name, f"{item.version} is installed, but the lock has {wanted}"))
    return found


def require_none(environment: Environment, found: Sequence[Difference], again: str) -> None:
    """Go on only if nothing differs; a VerificationError names what does, each by its path."""
    if not found:
        return
    lines = [f"{relative(environment.directory)}/{item.path} {item.problem}" for item in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"and {len(found) - SHOWN} more")
    raise VerificationError(
        f"environment {environment.name} is not what was installed: {len(found)} difference"
        + ("s" if len(found) > 1 else ""),
        "\n        ".join(lines),
        again,
    )
