"""Which tests run beside each other, in `eval/scripts/test`'s two workers of pytest-xdist.

A worker takes a whole group at a time and runs it in order, so what a group's tests share is made once and
is nobody else's. A test file is a group; the rooms and files below are one group each, because something of
theirs exists once on a machine (the Docker engine's images and containers) or is dear to make (a store of
Nix). Everything else that two processes of one checkout meet at has a lock of its own: set-ups, builds of
the engine, the test pin set.

The longest groups are given out first, so that the workers end about together. Groups are told by the file,
and not by pytest-xdist's marks: it writes those into a field that this pytest does not read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

WORKERS = 2
ENGINE = "docker"
TESTS = Path(__file__).parent
ROOMS = {"sandbox": ENGINE, "nix": "nix"}
"""Rooms that are one group, by the group's name."""
FILES = {
    "profiles/test_profiles_rescored.py": ENGINE,
    "profiles/test_profiles_run.py": ENGINE,
    "run/test_run_bounds.py": ENGINE,
    "run/test_run_container_docker.py": ENGINE,
    "run/test_run_demo.py": ENGINE,
    "run/test_run_hostile.py": ENGINE,
    "run/test_run_leftovers.py": ENGINE,
}
"""Files elsewhere that need the Docker engine."""
LONGEST = (
    ENGINE,
    "coordinator/test_real_suite.py",
    "campaign/test_campaign_real.py",
    "backends/test_backends_evalscope.py",
    "profiles/test_profiles_valid.py",
    "nix",
    "run/test_run_native_upstream.py",
    "run/test_run_direct.py",
    "server/cuda/test_cuda_operations.py",
    "server/engine/test_engine_fidelity.py",
    "server/engine/test_engine_determinism.py",
    "coordinator/test_suite_resume.py",
    "coordinator/test_suite_run.py",
    "campaign/test_campaign_steps.py",
)
"""Groups of minutes, the longest first; what is not named comes after them in the order of the files."""


class Scheduling(LoadScopeScheduling):
    """Hands a worker one group after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """The group of a test, by its id: its file's or its room's, else the file itself."""
    path = nodeid.partition("::")[0].removeprefix(f"{TESTS.name}/")
    return FILES.get(path) or ROOMS.get(path.partition("/")[0]) or path


def problems() -> list[str]:
    """Test files that need the engine and are not of its group: two of them at once would meet there."""
    files = sorted(TESTS.glob("*/test_*.py"))
    needing = [path for path in files if "pytest.mark.docker" in path.read_text("utf-8")]
    names = [path.relative_to(TESTS.parent).as_posix() for path in needing]
    return [f"{name} needs Docker: name it in tests/beside.py" for name in names if group(name) != ENGINE]


def arrange(items: list[pytest.Item]) -> None:
    """Bring the groups of minutes to the front."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(group(item.nodeid), len(place)))
