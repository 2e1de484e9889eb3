"""The lister for upstream's tasksets on Verifiers 0.4, over a taskset that can also describe itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from evaluator_side import describe

from assay.evaluator import load_evaluator
from assay.paths import CONFIGS, EVALUATORS

DEMO = CONFIGS / "demo"


@pytest.mark.slow
def test_verifiers_04_lists_what_the_taskset_describes_and_selects_as_it_would_run(tmp_path: Path) -> None:
    described = [task["key"] for task in json.loads(describe(DEMO / "reasoning-gym.toml").stdout)["tasks"]]
    cut = tmp_path / "cut.toml"
    cut.write_text("[select]\nskip = 3\nlimit = 5\n")

    assert listed() == described
    assert listed(cut) == described[3:8]


def listed(*more: Path) -> list[str]:
    """The keys that the lister tells for demo's entry and what is laid over it."""
    evaluator = load_evaluator("verifiers")
    files = (DEMO / "shared.toml", DEMO / "reasoning-gym.toml", *more)
    done = subprocess.run(
        [evaluator.binaries / "python", "-P", EVALUATORS / "tasks_v1.py", *files],
        env={"PATH": os.defpath, "HOME": os.devnull, **evaluator.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [task["key"] for task in json.loads(done.stdout.splitlines()[-1])["tasks"]]
