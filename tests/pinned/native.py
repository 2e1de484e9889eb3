"""Native commands of the pinned evaluators, started by hand as a run would start them: no core in between.

A test asks with it what upstream itself does, so that what the core believes is held against reality.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay import pinset
from assay.data.pins import datasets
from assay.evaluator import Evaluator, load_evaluator
from assay.paths import OWNED
from pinned.locks import PINS
from pinned.site import MADE

LIMIT_S = 600.0
UV = next((OWNED / "tools").glob("uv-*/bin"), OWNED)


class Native:
    """An evaluator of the test pin set in a working directory of its own, with all of its data routed."""

    def __init__(self, evaluator: str, folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(pinset.VARIABLE, str(PINS))
            self.evaluator: Evaluator = load_evaluator(evaluator)
            self.binaries = self.evaluator.binaries
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.variables = {
            "PATH": f"{UV}:{os.defpath}",
            "HOME": str(folder / "home"),
            "HF_HOME": str(folder / "home/hf"),
            "HF_DATASETS_CACHE": str(folder / "arrow"),
            "SSL_CERT_FILE": os.environ.get("SSL_CERT_FILE", ""),
            **self.evaluator.environment,
        }
        self.routed: dict[str, dict[str, Any]] = {}
        for route in self.evaluator.route:
            snapshot = str(MADE / "data" / datasets(PINS / "datasets.lock")[route.data].folder)
            self.routed[route.taskset] = {
                key.removeprefix("env.taskset."): value.replace("{snapshot}", snapshot)
                for key, value in route.set.items()
            }
            for key, value in route.environment.items():
                self.variables[key] = value.replace("{snapshot}", snapshot)
            if route.hub:
                self.variables["HF_HUB_CACHE"] = str(MADE / "data/hub")
            if route.link:
                link = self.work / route.link
                link.parent.mkdir()
                link.symlink_to(snapshot)

    def run(self, program: str, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end, in the working directory."""
        return subprocess.run(
            [self.binaries / program, *words],
            cwd=self.work,
            env={**self.variables, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def side(self, script: Path, request: Sequence[Any], **variables: str) -> list[dict[str, Any]]:
        """What a script finds in the environment's own Python."""
        done = self.run("python", script, json.dumps(request), **variables)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def taskset(self, name: str, **options: Any) -> dict[str, Any]:
        """The `[env.taskset]` table of a taskset, with its route's settings; dotted keys become tables."""
        table: dict[str, Any] = {"id": name, **options}
        for key, value in self.routed[name].items():
            *parents, last = key.split(".")
            inner = table
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last] = value
        return table

    def launch(self, name: str, table: Mapping[str, Any]) -> Path:
        """A launch file of `eval`, as JSON, which it reads as well as TOML."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(table), "utf-8")
        return path
