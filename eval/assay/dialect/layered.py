"""Verifiers 0.3.x (`eval`) and 0.4 (`vf-eval`): files layer, the last one wins, and `--dry-run` is native.

The two differ in how many tasks are asked for (`num_tasks`, `select.limit`) and in what their tables may
hold; what a run lays over them is the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.dialect.base import ENTRY, OVERRIDES, SHARED, Launch, sampled
from assay.evaluator import Evaluator
from assay.files import write_atomic, write_json_atomic
from assay.profile import merge

QUIET = ("--no-rich", "--no-push")


@dataclass(frozen=True)
class Layered:
    """The dialect of a version.

    Attributes:
        count: Where the configuration says how many tasks are asked for.
    """

    count: tuple[str, ...]
    files: tuple[str, ...] = (SHARED, ENTRY, OVERRIDES)

    def native(self, shared: str, entry: str) -> dict[str, Any]:
        """The configuration that the launch files alone give; ValueError when one is no TOML."""
        return merge(tomllib.loads(shared), tomllib.loads(entry))

    def taskset(self, native: Mapping[str, Any]) -> str:
        """The taskset's id; ValueError when the configuration names none."""
        found = value(native, "env", "taskset", "id")
        if not isinstance(found, str) or not found:
            raise ValueError("it names no env.taskset.id")
        return found

    def tasks(self, native: Mapping[str, Any]) -> int | None:
        """How many tasks are asked for; None for all that the taskset has."""
        return integer(value(native, *self.count))

    def rollouts(self, native: Mapping[str, Any]) -> int | None:
        """Rollouts of each task, None where nothing is said."""
        return integer(native.get("num_rollouts"))

    def concurrent(self, native: Mapping[str, Any]) -> int | None:
        """Rollouts in flight, None where nothing is said."""
        return integer(native.get("max_concurrent"))

    def first(self, tasks: int) -> dict[str, Any]:
        """The native option that asks for the first so many tasks."""
        option: Any = tasks
        for key in reversed(self.count):
            option = {key: option}
        return dict(option)

    def sampling(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Sampling options as the table `sampling`."""
        return {"sampling": sampled(options)}

    def base_url(self, native: Mapping[str, Any]) -> str | None:
        """The endpoint that the configuration names itself."""
        found = value(native, "client", "base_url")
        return found if isinstance(found, str) else None

    def run_directory(self, output_dir: Path, folder: str) -> Path:
        """The run directory, from the native option for where output goes and a part's folder."""
        return output_dir

    def overrides(self, launch: Launch) -> dict[str, Any]:
        """The last layer of the configuration: exactly what the launch says."""
        runtime: dict[str, Any] = {"type": launch.runtime}
        if launch.runtime == "docker":
            runtime |= {"image": launch.image, "allow": [], **launch.docker.native()}
        over: dict[str, Any] = {
            "model": launch.model,
            "max_concurrent": launch.max_concurrent,
            "output_dir": str(launch.output),
            "push": False,
            "run": {"name": launch.run_name, "dir": launch.folder},
            "client": {"base_url": launch.base_url, "api_key_var": launch.key_variable},
            "env": {"agent": {"runtime": runtime}},
        }
        if launch.seed is not None:
            over["sampling"] = {"seed": launch.seed}
        return merge(over, launch.routed)

    def write(self, folder: Path, texts: Mapping[str, str], over: Mapping[str, Any]) -> list[Path]:
        """Write launch files and overrides into a folder and return them in their layering order."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in (SHARED, ENTRY):
            write_atomic(folder / name, texts[name].encode("utf-8"))
        write_json_atomic(folder / OVERRIDES, over)
        return [folder / name for name in self.files]

    def command(self, program: Path, files: Sequence[Path]) -> list[str]:
        """The native command line over these files."""
        words = [str(program)]
        for path in files:
            words += ["@", str(path)]
        return [*words, *QUIET]

    def dry_run(self, evaluator: Evaluator, files: Sequence[Path]) -> list[str]:
        """The command line that resolves and validates these files natively and asks nothing."""
        return [*self.command(evaluator.binaries / evaluator.native.command, files), "--dry-run"]


def value(table: Mapping[str, Any], *path: str) -> Any:
    """What stands at a path of keys, None where it leads nowhere."""
    found: Any = table
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def integer(found: Any) -> int | None:
    """The number, None when it is no whole number."""
    return found if isinstance(found, int) and not isinstance(found, bool) else None
