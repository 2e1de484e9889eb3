"""The production pins: what is recorded of upstream elsewhere, and that nothing else passes for it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from upstream import git

from assay.paths import EVALUATORS, ROOT
from assay.setup.environments import ENVIRONMENTS, Environment
from assay.sources import load_lock
from tiny_checkout import Tiny, make

PRIME = "https://github.com/PrimeIntellect-ai"
SOURCES = {
    "prime-envs": (f"{PRIME}/prime-envs", "c4d04dfe212c153a587ea4ce072ae6753e74d6e9", None, None),
    "verifiers": (
        f"{PRIME}/verifiers",
        "ef47b2e96284a00bdcfc1012b9624b0c41ee6a0e",
        "v0.3.1",
        "b2e4e8157783b2c0dffc7821044c87f29f1c3ccf",
    ),
    "prime-envs-direct": (f"{PRIME}/prime-envs", "a6f4ceedfd79cad4586064fb1c27f5ea5f4a10fd", None, None),
    "verifiers-direct": (f"{PRIME}/verifiers", "977e3fc4050893d938f68163ae0bd79a8672e8d7", None, None),
}
PACKAGES = {
    "prime-envs": {
        "verifiers": ("0.3.2.dev86", "verifiers", "."),
        "aime24": ("0.1.0", "prime-envs", "environments/math/aime24"),
        "aime25": ("0.1.0", "prime-envs", "environments/math/aime25"),
        "aime26": ("0.1.0", "prime-envs", "environments/math/aime26"),
        "i3-logic": ("0.2.1", "prime-envs", "environments/reasoning/i3_logic"),
        "livecodebench": ("0.1.0", "prime-envs", "environments/code/livecodebench"),
        "mmlu-pro": ("0.1.0", "prime-envs", "environments/knowledge/mmlu_pro"),
        "mrcr-v2": ("0.1.0", "prime-envs", "environments/long_context/mrcr_v2"),
        "graphwalks": ("0.1.0", "prime-envs", "environments/long_context/graphwalks"),
    },
    "direct": {
        "verifiers": ("0.1.15.dev17", "verifiers-direct", "."),
        "mrcr-v2": ("0.1.1", "prime-envs-direct", "environments/mrcr_v2"),
        "graphwalks": ("0.1.0", "prime-envs-direct", "environments/graphwalks"),
    },
}
COUNTS = {"prime-envs": (113, 2670), "direct": (109, 2729)}
BUILD = {
    "prime-envs": {"editables==0.6", "hatch-vcs==0.5.0", "hatchling==1.32.0", "setuptools-scm==9.2.2"},
    "direct": {"editables==0.6", "hatchling==1.32.0"},
}


def environment(name: str) -> Environment:
    return ENVIRONMENTS[name]


def locked(path: Path) -> dict[str, set[str]]:
    """Digests by pinned requirement."""
    found: dict[str, set[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].add(line.strip(" \\"))
        else:
            found[line.split(" ")[0]] = set()
    return found


def test_the_sources_are_the_recorded_ones() -> None:
    found = load_lock().sources
    assert {
        name: (item.repository, item.revision, item.tag, item.tag_revision) for name, item in found.items()
    } == SOURCES


def test_the_programs_are_the_recorded_ones() -> None:
    lock = load_lock()
    assert lock.program("prime-envs", "null") == (
        "99f77d0c68f8ea9ab00fde62eab91a5e38aaf5f596407ef02fa6dbb989d6663f"
    )
    assert lock.program("prime-envs", "livecodebench") == (
        "88da02df6d8e24f84038b657566d61c75b9da7032b8e092edc4b9c24a75408da"
    )


@pytest.mark.parametrize("name", list(PACKAGES))
def test_the_packages_from_git_are_the_recorded_ones(name: str) -> None:
    found = environment(name)
    assert {item.name: (item.version, item.source, item.path) for item in found.editables} == PACKAGES[name]
    assert (found.lowest, found.highest) == ((3, 12), (3, 12))
    # The package from Git is not in the lock as well.
    assert not any(re.match(r"verifiers(\[.*)?==", line) for line in locked(found.requirements_lock))


@pytest.mark.parametrize("name", list(PACKAGES))
def test_the_locks_hold_the_recorded_packages_and_the_build_group(name: str) -> None:
    home = EVALUATORS / name
    requirements, build = locked(home / "requirements.lock"), locked(home / "build.lock")
    assert (len(requirements), sum(map(len, requirements.values()))) == COUNTS[name]
    assert set((home / "build.in").read_text().split()) == BUILD[name] <= set(build)
    # The second synchronisation must not take the build group away, nor change it.
    assert {line: requirements[line] for line in build} == build
    assert all(digests for digests in (*requirements.values(), *build.values()))


@pytest.fixture
def production(tmp_path: Path) -> tuple[Tiny, Path]:
    """A tiny checkout with the production pins, and a mirror that holds the stand-in for Prime Envs."""
    tiny = make(tmp_path)
    shutil.copy(ROOT / "prime-envs.lock", tiny.root / "prime-envs.lock")
    for name in PACKAGES:
        home = tiny.root / "eval/evaluators" / name
        home.mkdir(parents=True)
        shutil.copy(EVALUATORS / name / "evaluator.toml", home / "evaluator.toml")
    mirror = tmp_path / "mirror"
    maker = ROOT / "tests/pinned/mirror.py"
    subprocess.run([sys.executable, maker, mirror], check=True, capture_output=True)
    return tiny, mirror


def test_a_stand_in_is_no_prime_envs(production: tuple[Tiny, Path]) -> None:
    tiny, mirror = production
    done = tiny.run("eval/scripts/setup", "--sources-only", "--mirror", str(mirror))
    assert done.returncode == 3
    assert "4 sources cannot be had" in done.stderr
    for repository, revision, _, _ in SOURCES.values():
        assert f"({repository} at {revision})" in done.stderr
    assert list((tiny.root / "eval/.sources").iterdir()) == []


def test_a_stand_in_that_was_put_in_its_place_is_refused(production: tuple[Tiny, Path]) -> None:
    tiny, mirror = production
    source = tiny.root / "eval/.sources/prime-envs"
    source.parent.mkdir()
    git(tiny.root, "clone", "--quiet", str(mirror / "prime-envs.git"), str(source))
    git(source, "config", "remote.origin.url", f"{PRIME}/prime-envs")
    done = tiny.run("eval/scripts/setup", "prime-envs", "--sources-only", "--check")
    assert done.returncode == 5
    assert f"pinned is {SOURCES['prime-envs'][1]}" in done.stderr
