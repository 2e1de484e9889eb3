"""What a child may hold of the machine, and by which means it is held to that.

Where the machine has cgroup v2 with memory handed down to this process, the child and all that it starts are
one group with one bound, and are ended together when they reach it. Elsewhere each process is bounded by
itself (RLIMIT_DATA: what it allocates, not what it maps of files), which many processes together may exceed;
which of the two it was is recorded. No child leaves a core dump: it would hold the key.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HIERARCHY = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
GIBIBYTE = 1 << 30
EMPTIED_WITHIN_S = 5.0

How = Literal["cgroup", "process", "none"]


@dataclass(frozen=True)
class Bounds:
    """A child's bounds.

    Attributes:
        memory_bytes: Most memory; None for no bound.
        group: The cgroup made for the child; None where there is none.
    """

    memory_bytes: int | None
    group: Path | None

    @property
    def how(self) -> How:
        """By which means memory is bounded."""
        if self.memory_bytes is None:
            return "none"
        return "cgroup" if self.group is not None else "process"

    def prepare(self) -> None:
        """Take them on; runs in the child before its program."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.group is not None:
            handle = os.open(self.group / "cgroup.procs", os.O_WRONLY)
            os.write(handle, b"0")
            os.close(handle)
        elif self.memory_bytes is not None:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            most = self.memory_bytes if hard == resource.RLIM_INFINITY else min(self.memory_bytes, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    def broken(self) -> str:
        """What the bound has ended, in words; empty when nothing, or when each process is told by itself."""
        if self.group is None or self.memory_bytes is None:
            return ""
        events = {}
        with contextlib.suppress(OSError):
            lines = (self.group / "memory.events").read_text("ascii").splitlines()
            events = dict(line.split(" ", 1) for line in lines)
        if int(events.get("oom_kill", 0)) == 0:
            return ""
        return f"it was ended: it held more memory than its bound of {self.memory_bytes / GIBIBYTE:g} GiB"


@contextmanager
def bounds(name: str, memory_gib: float | None, hierarchy: Path = HIERARCHY) -> Iterator[Bounds]:
    """Bounds for one child while the block runs; whatever is left in its group then is killed.

    Args:
        name: Names the group among those of this process: one path segment.
        memory_gib: Most memory; None for no bound.
        hierarchy: Where cgroup v2 is mounted, if it is.
    """
    if memory_gib is None:
        yield Bounds(None, None)
        return
    memory_bytes = int(memory_gib * GIBIBYTE)
    group = make_group(name, memory_bytes, hierarchy)
    try:
        yield Bounds(memory_bytes, group)
    finally:
        if group is not None:
            remove_group(group)


def make_group(name: str, memory_bytes: int, hierarchy: Path) -> Path | None:
    """A fresh cgroup below this process's own, with that bound; None where that cannot be had."""
    above = own_group(hierarchy)
    if above is None:
        return None
    group = above / f"assay-{os.getpid()}-{name}"
    try:
        if "memory" not in (above / "cgroup.subtree_control").read_text("ascii").split():
            (above / "cgroup.subtree_control").write_text("+memory", "ascii")
        group.mkdir()
        (group / "memory.max").write_text(str(memory_bytes), "ascii")
    except OSError:
        remove_group(group)
        return None
    with contextlib.suppress(OSError):
        (group / "memory.oom.group").write_text("1", "ascii")
    with contextlib.suppress(OSError):  # without it memory would only move there
        (group / "memory.swap.max").write_text("0", "ascii")
    return group


def own_group(hierarchy: Path) -> Path | None:
    """This process's own cgroup; None where the hierarchy is no cgroup v2 that knows of memory."""
    try:
        if "memory" not in (hierarchy / "cgroup.controllers").read_text("ascii").split():
            return None
        lines = MEMBERSHIP.read_text("utf-8").splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    return None if path is None else hierarchy / path.lstrip("/")


def remove_group(group: Path) -> None:
    """Kill what is left in a group and remove it; one that cannot be removed is left, empty."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", "ascii")
    deadline = time.monotonic() + EMPTIED_WITHIN_S
    while group.is_dir() and time.monotonic() < deadline:
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.01)
