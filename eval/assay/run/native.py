"""Launching the evaluator: its own command, in its own environment, offline, in a private home.

The evaluator gets nothing of the caller's environment but what is listed here, so that no user's
configuration, cache or credential decides a result or leaks into a record. Its key stands in its
environment alone. Everything it writes lands in the run directory or in the run's private folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay import dialect, pinset
from assay.errors import ConfigurationError, PrerequisiteError
from assay.evaluator import Evaluator, load_evaluator
from assay.paths import CACHE, owned_directory, relative
from assay.plan import EntryPlan, Plan
from assay.process import finish
from assay.run.key import Key
from assay.run.route import Routed
from assay.shell import python_variables

VALIDATE_TIMEOUT_S = 300.0
TEMPORARY = "temporary"
PASSED_ON = ("LANG", "LC_ALL", "TZ", "DOCKER_HOST", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True)
class Scratch:
    """A run's private folder: gone when the run ends, never part of the record.

    Attributes:
        path: Mode 0700, inside the checkout.
    """

    path: Path

    def folder(self, name: str) -> Path:
        """A folder of that name inside, made if need be."""
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def temporary(self) -> Path:
        """The folder for temporary files, made if need be, mode 0700 in the system's place for them.

        The evaluator binds sockets in it, and a socket's path holds 107 bytes: below a checkout, whose own
        path may be long, it would not fit. A link in here remembers it, for whoever removes this folder.
        """
        link = self.path / TEMPORARY
        if not link.is_symlink():
            link.symlink_to(tempfile.mkdtemp(prefix=f"{self.path.name}-"))
        return link.readlink()

    def remove(self) -> None:
        """Remove this folder and the temporary one; what cannot be removed is left."""
        link = self.path / TEMPORARY
        if link.is_symlink():
            shutil.rmtree(link.readlink(), ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)


def environment(
    plan: Plan, scratch: Scratch, key: Key | None, run_name: str, routed: Routed | None = None
) -> dict[str, str]:
    """The evaluator's whole environment.

    Args:
        plan: What runs.
        scratch: The run's private folder.
        key: The endpoint's key.
        run_name: Labels what the evaluator starts, so that it can be found again.
        routed: How the entry's taskset finds its data.
    """
    # Without a key the evaluator wants the variable all the same; the server then ignores it.
    secret = {plan.key_variable: key.reveal() if key else "none"}
    return variables(plan, scratch, run_name, routed) | secret


def variables(plan: Plan, scratch: Scratch, run_name: str, routed: Routed | None = None) -> dict[str, str]:
    """The evaluator's environment but for its key: nothing secret stands in it.

    Args:
        plan: What runs.
        scratch: The run's private folder.
        run_name: See `environment`.
        routed: See `environment`.
    """
    routes = routed.environment if routed else {}
    return surroundings(load_evaluator(plan.evaluator), scratch, routes) | {"VF_RUN_ID": run_name}


def surroundings(
    evaluator: Evaluator, scratch: Scratch, more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """What every program of an evaluator's environment gets: a private home, no hub, and no secret.

    Args:
        evaluator: Whose environment.
        scratch: The private folder.
        more: Further variables; they open no hub and name no other home.
    """
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {
        **passed,
        **python_variables(),
        **evaluator.environment,
        **more,
        "PATH": os.pathsep.join([str(evaluator.binaries), os.environ.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": str(evaluator.binaries.parent),
        "HOME": str(scratch.folder("home")),
        "XDG_CACHE_HOME": str(scratch.folder("cache")),
        "TMPDIR": str(scratch.folder("tmp")),
        "HF_HOME": str(scratch.folder("hf")),
        "HF_DATASETS_CACHE": str(scratch.folder("arrow")),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "UV_CACHE_DIR": str(owned_directory(CACHE / "uv")),
        "PYTHONNOUSERSITE": "1",
    }


def write_launch(plan: Plan, entry: EntryPlan, folder: Path, over: Mapping[str, Any]) -> list[Path]:
    """Write an entry's launch files and the overrides, and return what the native command is given."""
    return dialect.of(plan.dialect).write(folder, entry.launch, over)


def command(plan: Plan, files: Sequence[Path]) -> list[str]:
    """The evaluator's native command line over the launch files."""
    evaluator = load_evaluator(plan.evaluator)
    return dialect.of(plan.dialect).command(evaluator.binaries / evaluator.native.command, files)


def validate(plan: Plan, entry: EntryPlan, files: Sequence[Path], env: Mapping[str, str], cwd: Path) -> None:
    """Let the evaluator itself resolve and validate an entry's configuration.

    Raises:
        ConfigurationError: it refuses; the message holds its last words.
        PrerequisiteError: the evaluator is not set up.
    """
    evaluator = load_evaluator(plan.evaluator)
    program(evaluator, evaluator.native.command)
    words = dialect.of(plan.dialect).dry_run(evaluator, files)
    done = finish(words, env=env, cwd=cwd, timeout_s=VALIDATE_TIMEOUT_S)
    if done.returncode != 0:
        raise ConfigurationError(
            f'the evaluator refuses entry "{entry.name}" of profile "{plan.profile}"',
            last_words(done.stderr or done.stdout),
            f"edit {entry_file(plan, entry)}",
        )


def entry_file(plan: Plan, entry: EntryPlan) -> str:
    """Where an entry's own configuration stands, as a user would type it."""
    return relative(pinset.current().configs / plan.profile / f"{entry.name}.toml")


def program(evaluator: Evaluator, name: str) -> Path:
    """A program of the evaluator's environment; PrerequisiteError when the environment is not there."""
    path = evaluator.binaries / name
    if not path.is_file():
        raise PrerequisiteError(
            f'the evaluator "{evaluator.name}" is not set up',
            f"its environment has no {name}",
            f"eval/scripts/setup {evaluator.name}",
        )
    return path


def last_words(output: bytes, lines: int = 4) -> str:
    """The last lines a child printed, as one line."""
    text = output.decode("utf-8", errors="replace").strip().splitlines()[-lines:]
    return " | ".join(line.strip() for line in text) or "it printed nothing"
