"""The evaluator's environment, asked from outside: no test imports the taskset or the library."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.paths import EVALUATORS

PYTHON = EVALUATORS / "verifiers" / ".venv" / "bin" / "python"
LIBRARY_SIDE = Path(__file__).with_name("library_side.py")

Ask = Callable[..., Any]


class LibrarySide:
    """One process of the evaluator's environment under a hash seed."""

    def __init__(self, hash_seed: str) -> None:
        self._process = subprocess.Popen(
            [PYTHON, LIBRARY_SIDE],
            env={"PATH": os.defpath, "PYTHONHASHSEED": hash_seed, "HOME": os.devnull},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str, **values: object) -> Any:
        """The answer; AssertionError when the other side ended over anything but a refusal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": question, **values}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the other side ended; its traceback stands above"
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def describe(config: Path, hash_seed: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the taskset's own command on a configuration, under a hash seed or a random one."""
    environment = {"PATH": os.defpath, "HOME": os.devnull}
    if hash_seed is not None:
        environment["PYTHONHASHSEED"] = hash_seed
    return subprocess.run(
        [PYTHON, "-m", "reasoning_gym_tasks.describe", config],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
