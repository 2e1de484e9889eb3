"""Launching the evaluator: its own command, in its own environment, offline, in a private home.

The evaluator gets nothing of the caller's environment but what is listed here, so that no user's
configuration, cache or credential decides a result or leaks into a record. Its key stands in its
environment alone. Everything it writes lands in the run directory or in the run's private folder.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.errors import ConfigurationError, PrerequisiteError, RunError
from assay.evaluator import Evaluator, load_evaluator
from assay.files import write_atomic, write_json_atomic
from assay.names import nearest
from assay.paths import CACHE, owned_directory
from assay.plan import LAUNCH_FILES, EntryPlan, Plan
from assay.process import finish
from assay.profile import describe as describe_error
from assay.record.sample import Baseline, PlannedTask, TaskPlan
from assay.run.key import Key
from assay.shell import python_variables

DESCRIBE_TIMEOUT_S = 300.0
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


def environment(plan: Plan, scratch: Scratch, key: Key | None, run_name: str) -> dict[str, str]:
    """The evaluator's whole environment.

    Args:
        plan: What runs.
        scratch: The run's private folder.
        key: The endpoint's key.
        run_name: Labels what the evaluator starts, so that it can be found again.
    """
    evaluator = load_evaluator(plan.evaluator)
    binaries = evaluator.binaries
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {
        **passed,
        **python_variables(),
        **evaluator.environment,
        "PATH": os.pathsep.join([str(binaries), os.environ.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": str(binaries.parent),
        "HOME": str(scratch.folder("home")),
        "XDG_CACHE_HOME": str(scratch.folder("cache")),
        "TMPDIR": str(scratch.folder("tmp")),
        "HF_HOME": str(scratch.folder("hf")),
        "HF_DATASETS_CACHE": str(scratch.folder("arrow")),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "UV_CACHE_DIR": str(owned_directory(CACHE / "uv")),
        "PYTHONNOUSERSITE": "1",
        "VF_RUN_ID": run_name,
        # Without a key the evaluator wants the variable all the same; the server then ignores it.
        evaluator.key_variable: key.reveal() if key else "none",
    }


def write_launch(folder: Path, entry: EntryPlan, over: Mapping[str, Any]) -> list[Path]:
    """Write an entry's launch files and the overrides, and return them in their layering order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in LAUNCH_FILES:
        write_atomic(folder / name, entry.launch[name].encode("utf-8"))
        paths.append(folder / name)
    write_json_atomic(folder / "overrides.json", over)
    return [*paths, folder / "overrides.json"]


def command(plan: Plan, files: list[Path], dry_run: bool = False) -> list[str]:
    """The evaluator's native command line over layered configuration files."""
    evaluator = load_evaluator(plan.evaluator)
    words = [str(evaluator.binaries / evaluator.command)]
    for path in files:
        words += ["@", str(path)]
    return [*words, "--no-rich", "--no-push", *(["--dry-run"] if dry_run else [])]


def validate(plan: Plan, entry: EntryPlan, files: list[Path], env: Mapping[str, str], cwd: Path) -> None:
    """Let the evaluator itself resolve and validate an entry's configuration.

    Raises:
        ConfigurationError: it refuses; the message holds its last words.
    """
    evaluator = load_evaluator(plan.evaluator)
    program(evaluator, evaluator.command)
    done = finish(command(plan, files, dry_run=True), env=env, cwd=cwd, timeout_s=DESCRIBE_TIMEOUT_S)
    if done.returncode != 0:
        raise ConfigurationError(
            f'the evaluator refuses entry "{entry.name}" of profile "{plan.profile}"',
            last_words(done.stderr or done.stdout),
            f"edit eval/configs/{plan.profile}/{entry.name}.toml",
        )


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


def describe_tasks(
    plan: Plan,
    entry: EntryPlan,
    config: Path,
    env: Mapping[str, str],
    cwd: Path,
    cancelled: Callable[[], bool] = lambda: False,
) -> TaskPlan:
    """Ask the taskset itself which tasks an entry will ask, without a model.

    Args:
        plan: The plan.
        entry: The entry.
        config: Its native TOML.
        env: The evaluator's environment.
        cwd: Where the command runs.
        cancelled: Asked again and again: whether to give up.

    Raises:
        ConfigurationError: the taskset is none of the evaluator's, or refuses the configuration, or yields
            another number of tasks than expected.
        PrerequisiteError: the evaluator is not set up.
        CancelledError: `cancelled` said so.
        RunError: it answers something else than a description.
    """
    evaluator = load_evaluator(plan.evaluator)
    taskset = entry.taskset
    # The plan may be a stranger's: only modules that this checkout installs are run.
    if taskset not in evaluator.tasksets:
        raise ConfigurationError(
            f'entry "{entry.name}" asks for the taskset "{taskset}"',
            f'evaluator "{evaluator.name}" does not have it; {nearest(taskset, evaluator.tasksets)}',
            f"edit eval/configs/{plan.profile}/{entry.name}.toml",
        )
    done = finish(
        [program(evaluator, "python"), "-m", f"{taskset}.describe", config],
        env=env,
        cwd=cwd,
        timeout_s=DESCRIBE_TIMEOUT_S,
        cancelled=cancelled,
    )
    if done.returncode != 0:
        raise ConfigurationError(
            f'the taskset of entry "{entry.name}" refuses its configuration',
            last_words(done.stderr),
            f"edit eval/configs/{plan.profile}/{entry.name}.toml",
        )
    try:
        value = json.loads(done.stdout)
        tasks = TaskPlan(
            tasks=tuple(PlannedTask.model_validate(task) for task in value["tasks"]),
            baselines={
                name: Baseline.model_validate(family["baseline"])
                for name, family in value["families"].items()
                if family["baseline"] is not None
            },
        )
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise RunError(f"the taskset {taskset} does not describe its tasks", describe_error(error)) from error
    if len(tasks.tasks) != entry.tasks:
        raise ConfigurationError(
            f'entry "{entry.name}" yields {len(tasks.tasks)} tasks, expected {entry.tasks}',
            "profiles.toml and the entry's TOML disagree",
            "make the two files agree",
        )
    return tasks


def last_words(output: bytes, lines: int = 4) -> str:
    """The last lines a child printed, as one line."""
    text = output.decode("utf-8", errors="replace").strip().splitlines()[-lines:]
    return " | ".join(line.strip() for line in text) or "it printed nothing"
