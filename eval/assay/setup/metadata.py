"""What a pinned source's package says of itself, held against what was recorded when it was pinned.

A package from Git has no digest of its own in any lock, and its version or requirements can be computed while
it is built. So its metadata is built first, in the environment it goes into and without isolation, and
nothing is installed unless name, version and requirements are the recorded ones; what was installed is read
again.
"""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from email.parser import HeaderParser
from pathlib import Path

from assay.errors import VerificationError
from assay.paths import CACHE, owned_directory, relative
from assay.setup import tool
from assay.setup.environments import Editable, Environment
from assay.setup.installed import normalised, site_packages

BACKEND = "hatchling.build"
BUILD = """
import importlib, os, sys
backend, project, out = sys.argv[1:]
os.chdir(project)
info = importlib.import_module(backend).prepare_metadata_for_build_editable(out)
os.replace(os.path.join(out, info, "METADATA"), os.path.join(out, "METADATA"))
"""
REQUIREMENT = re.compile(
    r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[([^\]]*)\])?\s*\(?([^;()]*)\)?\s*(?:;\s*(.*))?", re.S
)


def require_built(environment: Environment, runner: tool.Runner, variables: Mapping[str, str]) -> None:
    """Build each editable's metadata and hold it against the record.

    Args:
        environment: An environment that holds the build group already.
        runner: Runs the builds.
        variables: The builds' whole environment.

    Raises:
        PrerequisiteError: one cannot be built.
        VerificationError: one differs, or builds with what is not locked.
    """
    for editable in environment.editables:
        backend = require_backend(environment, editable)
        with tempfile.TemporaryDirectory(dir=owned_directory(CACHE / "tmp")) as out:
            runner.run(
                [environment.python, "-I", "-B", "-c", BUILD, backend, editable.directory, out],
                variables,
                f"the metadata of {editable.name} ({relative(editable.directory)}) could not be built",
                f"eval/scripts/setup {environment.name}",
            )
            built = Path(out, "METADATA").read_text("utf-8")
        require(environment, editable, built, "builds")


def require_backend(environment: Environment, editable: Editable) -> str:
    """The project's build backend; VerificationError unless it is the one that the build group locks."""
    path = editable.directory / "pyproject.toml"
    try:
        system = tomllib.loads(path.read_text("utf-8"))["build-system"]
    except (OSError, ValueError, KeyError) as error:
        raise differs(environment, f"{editable.name} is no project: {relative(path)}", repr(error)) from error
    if system.get("build-backend") != BACKEND or "backend-path" in system:
        raise differs(
            environment,
            f"{editable.name} builds with {system.get('build-backend')!r}",
            f"only {BACKEND} is locked ({relative(environment.build_lock)})",
        )
    return BACKEND


def require_installed(environment: Environment) -> None:
    """Hold the metadata that was installed against the record; VerificationError when it differs."""
    folders = {
        normalised(path.name.removesuffix(".dist-info").rpartition("-")[0]): path
        for path in site_packages(environment).glob("*.dist-info")
    }
    for editable in environment.editables:
        folder = folders.get(normalised(editable.name))
        if folder is None:
            raise differs(environment, f"{editable.name} was not installed", "its build gave no such package")
        require(environment, editable, (folder / "METADATA").read_text("utf-8"), "installed")


def require(environment: Environment, editable: Editable, text: str, verb: str) -> None:
    """VerificationError, naming each difference, unless metadata is the recorded one."""
    found = differences(editable, text)
    if found:
        raise differs(
            environment,
            f"{editable.name} {verb} other metadata than was recorded when its source was pinned",
            "\n        ".join(found),
        )


def differs(environment: Environment, what: str, why: str) -> VerificationError:
    """The error for metadata that is not the recorded one."""
    description = relative(environment.requirements_lock.parent / "evaluator.toml")
    return VerificationError(
        what, why, f"git diff {description} prime-envs.lock: both must be of the same pins, then set up again"
    )


def differences(editable: Editable, text: str) -> list[str]:
    """Where metadata says something else than was recorded."""
    message = HeaderParser().parsestr(text)
    found = []
    for field, value, recorded in (
        ("name", normalised(message["Name"] or ""), normalised(editable.name)),
        ("version", message["Version"], editable.version),
    ):
        if value != recorded:
            found.append(f"its {field} is {value}, recorded is {recorded}")
    now = spelled(message.get_all("Requires-Dist") or ())
    then = spelled(editable.requires)
    found += [f"it requires {now[key]}, which is not recorded" for key in sorted(now.keys() - then.keys())]
    found += [f"it does not require {then[key]} any more" for key in sorted(then.keys() - now.keys())]
    return found


def spelled(requirements: Iterable[str]) -> dict[str, str]:
    """Requirements as they were written, by the one spelling that those of the same meaning share."""
    return {spelling(text): text for text in requirements}


def spelling(requirement: str) -> str:
    """A requirement without what does not matter: spaces, quotes, order of versions, needless brackets."""
    match = REQUIREMENT.fullmatch(requirement)
    if match is None:
        return requirement
    name, extras, versions, marker = match.groups()
    chosen = ",".join(sorted(normalised(part.strip()) for part in (extras or "").split(",") if part.strip()))
    wanted = ",".join(sorted("".join(part.split()) for part in versions.split(",") if part.strip()))
    condition = re.sub(r"\(\s*([^()]*?)\s*\)", unbracketed, (marker or "").replace("'", '"'))
    condition = " ".join(re.sub(r"\s*(===|[<>=!~]=|[<>])\s*", r" \1 ", condition).split())
    return f"{normalised(name)}[{chosen}]{wanted};{condition}"


def unbracketed(match: re.Match[str]) -> str:
    """What stands in brackets, without them when it is a single comparison."""
    inside = match[1]
    return match[0] if re.search(r"\b(and|or)\b", inside) else inside
