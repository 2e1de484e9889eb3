"""Verifiers 0.1.15 (`vf-eval` of that time): one TOML file of defaults and `[[eval]]` tables, nothing layers.

So the shared part, the entry's one `[[eval]]` and a run's own values are merged here into one file with one
table, and that file is what the command is given. It has no dry run either: a program in the evaluator's
environment lets the command's own code read the file and stops it where it would ask.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.dialect.base import ENTRY, OVERRIDES, SHARED, Launch, sampled
from assay.dialect.layered import integer
from assay.evaluator import Evaluator
from assay.files import write_atomic, write_json_atomic
from assay.paths import EVALUATORS
from assay.profile import merge

LAUNCH = "launch.toml"
VALIDATE = EVALUATORS / "validate_v0.py"
WHOLE = -1


@dataclass(frozen=True)
class Flat:
    """The dialect of that version."""

    files: tuple[str, ...] = (LAUNCH,)

    def native(self, shared: str, entry: str) -> dict[str, Any]:
        """The configuration that the launch files alone give.

        Raises:
            ValueError: a text is no TOML, the shared part holds a list of evaluations, or the entry anything
                but one.
        """
        defaults, own = tomllib.loads(shared), tomllib.loads(entry)
        tables = own.get("eval")
        if set(own) != {"eval"} or not isinstance(tables, list) or len(tables) != 1:
            raise ValueError("the entry must hold one table [[eval]] and nothing beside it")
        if {"eval", "ablation"} & set(defaults):
            raise ValueError("the shared part may hold defaults alone, no [[eval]] and no [[ablation]]")
        return merge(defaults, tables[0])

    def taskset(self, native: Mapping[str, Any]) -> str:
        """The environment's id; ValueError when the configuration names none."""
        found = native.get("env_id")
        if not isinstance(found, str) or not found:
            raise ValueError("it names no env_id")
        return found

    def tasks(self, native: Mapping[str, Any]) -> int | None:
        """How many tasks are asked for; None for all that the environment has."""
        found = integer(native.get("num_examples"))
        return None if found == WHOLE else found

    def rollouts(self, native: Mapping[str, Any]) -> int | None:
        """Rollouts of each task, None where nothing is said."""
        return integer(native.get("rollouts_per_example"))

    def concurrent(self, native: Mapping[str, Any]) -> int | None:
        """Rollouts in flight, None where nothing is said."""
        return integer(native.get("max_concurrent"))

    def first(self, tasks: int) -> dict[str, Any]:
        """The native option that asks for the first so many tasks."""
        return {"num_examples": tasks}

    def sampling(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Sampling options as the table `sampling_args`."""
        return {"sampling_args": sampled(options)}

    def base_url(self, native: Mapping[str, Any]) -> str | None:
        """The endpoint that the configuration names itself."""
        found = native.get("api_base_url")
        return found if isinstance(found, str) else None

    def run_directory(self, output_dir: Path, folder: str) -> Path:
        """The run directory, from the native option for where output goes and a part's folder."""
        return Path(str(output_dir).removesuffix(f"/{folder}"))

    def overrides(self, launch: Launch) -> dict[str, Any]:
        """The last layer of the configuration: exactly what the launch says."""
        over: dict[str, Any] = {
            "model": launch.model,
            "max_concurrent": launch.max_concurrent,
            "output_dir": str(launch.output / launch.folder),
            "api_base_url": launch.base_url,
            "api_key_var": launch.key_variable,
            "save_results": True,
            "save_to_hf_hub": False,
        }
        if launch.seed is not None:
            over["sampling_args"] = {"seed": launch.seed}
        return merge(over, launch.routed)

    def write(self, folder: Path, texts: Mapping[str, str], over: Mapping[str, Any]) -> list[Path]:
        """Write launch files and overrides into a folder, and the one file that they make."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in (SHARED, ENTRY):
            write_atomic(folder / name, texts[name].encode("utf-8"))
        write_json_atomic(folder / OVERRIDES, over)
        whole = merge(self.native(texts[SHARED], texts[ENTRY]), over)
        lines = ["[[eval]]", *(f"{key(name)} = {inline(item)}" for name, item in whole.items())]
        write_atomic(folder / LAUNCH, ("\n".join(lines) + "\n").encode("utf-8"))
        return [folder / LAUNCH]

    def command(self, program: Path, files: Sequence[Path]) -> list[str]:
        """The native command line over the one file."""
        (launch,) = files
        return [str(program), str(launch), "--disable-tui"]

    def dry_run(self, evaluator: Evaluator, files: Sequence[Path]) -> list[str]:
        """The command line that lets the command's own code read the file and asks nothing."""
        (launch,) = files
        return [str(evaluator.binaries / "python"), "-P", str(VALIDATE), str(launch)]


def inline(item: Any) -> str:
    """A value as one line of TOML; TypeError for what TOML has no form of.

    JSON's strings are TOML's, but for DEL, which TOML wants escaped.
    """
    if isinstance(item, int | str):
        return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(item, float):
        return repr(item)
    if isinstance(item, Mapping):
        return "{" + ", ".join(f"{key(name)} = {inline(inner)}" for name, inner in item.items()) + "}"
    if isinstance(item, Sequence):
        return "[" + ", ".join(inline(inner) for inner in item) + "]"
    raise TypeError(f"TOML has no form of {item!r}")


def key(name: str) -> str:
    """A key of TOML, always quoted."""
    return inline(name)
