"""Bounds of memory: by a group where there is cgroup v2, else by each process; and never a core dump."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from assay.coordinator import limits
from assay.coordinator.limits import GIBIBYTE, Bounds, bounds
from assay.paths import EVAL
from assay.process import start

HOLD = "held = bytearray(700 << 20); print(len(held))"


def run_bounded(bounded: Bounds, code: str, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    child = start(
        [sys.executable, "-c", code],
        env={},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        prepare=bounded.prepare,
    )
    said, _ = child.communicate(timeout=60)
    return subprocess.CompletedProcess(child.args, child.returncode, said)


@pytest.mark.parametrize(("memory_gib", "fits"), [(0.5, False), (2.0, True)])
def test_a_process_holds_no_more_than_its_bound_where_there_is_no_cgroup(
    tmp_path: Path, memory_gib: float, fits: bool
) -> None:
    with bounds("job", memory_gib, tmp_path / "nothing") as bounded:
        assert bounded.how == "process"
        done = run_bounded(bounded, HOLD, tmp_path)
    assert (done.returncode == 0) is fits
    assert (b"MemoryError" in done.stdout) is not fits
    assert bounded.broken() == ""


def test_without_a_bound_a_child_has_the_machine_s_but_leaves_no_core(tmp_path: Path) -> None:
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_DATA))"
    with bounds("job", None) as bounded:
        done = run_bounded(bounded, code, tmp_path)
    assert bounded.how == "none"
    assert done.stdout.decode().strip() == f"(0, 0) {resource.getrlimit(resource.RLIMIT_DATA)}"


def test_a_bound_above_the_machine_s_own_hard_limit_does_not_raise_it(tmp_path: Path) -> None:
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "from assay.coordinator.limits import Bounds\n"
        "Bounds(1 << 40, None).prepare(); print(resource.getrlimit(resource.RLIMIT_DATA))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(EVAL)], stdout=subprocess.PIPE, check=True, cwd=tmp_path
    )
    assert done.stdout.decode().strip() == str((GIBIBYTE, GIBIBYTE))


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of a cgroup v2 hierarchy, and this process's own group in it."""
    root = tmp_path / "hierarchy"
    (root / "own").mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    (root / "own" / "cgroup.subtree_control").write_text("cpu memory\n")
    (tmp_path / "membership").write_text("4:memory:/other\n0::/own\n")
    monkeypatch.setattr(limits, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(limits, "EMPTIED_WITHIN_S", 0.0)
    return root


def test_a_group_is_made_below_our_own_bounded_joined_and_emptied(tmp_path: Path, hierarchy: Path) -> None:
    with bounds("job", 1.5, hierarchy) as bounded:
        group = bounded.group
        assert bounded.how == "cgroup"
        assert group is not None
        assert group.parent == hierarchy / "own"
        assert (group / "memory.max").read_text() == str(3 * GIBIBYTE // 2)
        assert (group / "memory.oom.group").read_text() == "1"
        (group / "cgroup.procs").touch()
        assert run_bounded(bounded, "print('in')", tmp_path).stdout == b"in\n"
        assert (group / "cgroup.procs").read_text() == "0", "whoever writes 0 joins by itself"
        assert bounded.broken() == ""
        (group / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
        assert "its bound of 1.5 GiB" in bounded.broken()
    assert (group / "cgroup.kill").read_text() == "1"


def test_a_child_that_cannot_join_its_group_is_not_started(tmp_path: Path, hierarchy: Path) -> None:
    with bounds("job", 1.0, hierarchy) as bounded, pytest.raises(subprocess.SubprocessError):
        run_bounded(bounded, "print('in')", tmp_path)


@pytest.mark.parametrize(
    ("controllers", "membership"),
    [("cpu pids", "0::/own"), ("memory", "4:memory:/own"), ("memory", "0::/away")],
)
def test_where_memory_is_not_ours_to_divide_each_process_is_bounded_by_itself(
    tmp_path: Path, hierarchy: Path, controllers: str, membership: str
) -> None:
    (hierarchy / "cgroup.controllers").write_text(controllers)
    (tmp_path / "membership").write_text(membership + "\n")
    with bounds("job", 1.0, hierarchy) as bounded:
        assert (bounded.how, bounded.group) == ("process", None)
    assert [path.name for path in (hierarchy / "own").iterdir()] == ["cgroup.subtree_control"]


def test_this_machine_holds_a_child_to_its_bound_by_whatever_it_has(tmp_path: Path) -> None:
    with bounds("job", 0.5) as bounded:
        done = run_bounded(bounded, HOLD, tmp_path)
        assert done.returncode != 0
        assert bounded.how == "process" or "its bound of 0.5 GiB" in bounded.broken()
    assert bounded.group is None or not bounded.group.exists()
