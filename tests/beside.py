"""Which tests run beside each other, in `eval/scripts/test`'s two workers of pytest-xdist.

A worker takes a whole group at a time and runs it in order, so what a group's tests share is made once and
is nobody else's. A test file is a group; the rooms below are one group each, because something of theirs
exists once on a machine (the Docker engine's images and containers) or is dear to make (a store of Nix).
Everything else that two processes of one checkout meet at has a lock of its own: set-ups, engine builds, the
test pin set.

The longest groups are given out first, so that the workers end about together.
"""

from __future__ import annotations

from pathlib import Path

import pytest

WORKERS = 2
ENGINE = "docker"
TESTS = Path(__file__).parent
ROOMS = {"sandbox": ENGINE, "nix": "nix"}
"""Rooms that are one group, by the group's name."""
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


def group(item: pytest.Item) -> str:
    """The group of a test: its room's, the engine's where it needs one, else its file's."""
    if item.get_closest_marker("docker") is not None:
        return ENGINE
    path = item.path.relative_to(TESTS)
    return ROOMS.get(path.parts[0], path.as_posix())


def arrange(items: list[pytest.Item]) -> None:
    """Mark every test with its group and bring the groups of minutes to the front."""
    place = {name: number for number, name in enumerate(LONGEST)}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=lambda item: place.get(group(item), len(place)))
