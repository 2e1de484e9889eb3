"""Watching a run's containers: what no flag of `docker run` bounds, and that the flags hold.

A model that may run commands can fill a disk, or make its harness pass on so much output that the evaluator
fills the machine's memory. Overlay2 on most file systems has no quota, so twice a second the engine is asked
how large each container's own files are, and one that holds more than the limit is killed; so are all of the
run's when the engine's disk or the machine's memory is nearly used up. The evaluator then records that
rollout as failed, and goes on with the next.

It is also seen here that every container of the run really has its limits: one that has not is killed, and an
entry whose record names a container that nobody saw does not count as bounded.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import docker
from docker import DockerClient
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from assay.evaluator import DockerLimits
from assay.process import descendants
from assay.run.client import GIGABYTE, LABEL

PERIOD_S = 0.5
CALL_S = 30
LEAST_FREE_BYTES = 1 << 30
LEAST_FREE_SHARE = 1 / 16
"""Of the disk's files, and of memory."""
HELD_SHARE = 1 / 4
"""Of memory; below it the evaluator is not what fills the machine."""
FAILURES = (DockerException, RequestException, OSError)


@dataclass
class Watched:
    """A container of the run, as far as it was seen.

    Attributes:
        id: The engine's id of it.
        name: Its name.
        image: Id of its image.
        pids: Its limit of processes, as the engine enforces it; None for none.
        memory_bytes: Its limit of memory; None for none.
        cpu: Its limit of processors; None for none.
        most_bytes: The most that its own files held when they were looked at.
        killed: Why it was killed here; empty when it was not.
    """

    id: str
    name: str
    image: str
    pids: int | None
    memory_bytes: int | None
    cpu: float | None
    most_bytes: int = 0
    killed: str = ""


@dataclass
class Guard:
    """What is watched of one entry, and what was found.

    Attributes:
        run_name: The label of the containers.
        limits: What each is bounded to.
        evaluator: Process id of the evaluator's keeper.
        seen: Every container that was there when it was looked, by id.
        ended: Set when nothing is to be watched any more.
        thread: What watches.
    """

    run_name: str
    limits: DockerLimits
    evaluator: int
    seen: dict[str, Watched] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def watch(self) -> None:
        """Look again and again; an engine that does not answer is asked again, from the connection on."""
        while not self.ended.is_set():
            with (
                contextlib.suppress(*FAILURES),
                contextlib.closing(docker.from_env(timeout=CALL_S)) as client,
            ):
                while not self.ended.wait(PERIOD_S):
                    self.look(client)
            self.ended.wait(PERIOD_S)

    def end(self) -> None:
        """Stop watching."""
        self.ended.set()
        if self.thread is not None:
            self.thread.join()

    def describe(self) -> dict[str, Any]:
        """What was found, as JSON values for the record."""
        limits = self.limits.model_dump(mode="json")
        return {"limits": limits, "containers": [asdict(watched) for watched in self.seen.values()]}

    def notes(self) -> list[str]:
        """One line for each container that was killed here."""
        return [f"container {watched.name} was killed: {watched.killed}" for watched in self.killed()]

    def killed(self) -> list[Watched]:
        """The containers that were killed here."""
        return [watched for watched in self.seen.values() if watched.killed]

    def unseen(self, ids: list[str]) -> list[str]:
        """Those of some containers' ids, whole or their first digits, that belong to none that was seen."""
        return [wanted for wanted in ids if not any(known.startswith(wanted) for known in self.seen)]

    def look(self, client: DockerClient) -> None:
        """Look at every container of the run once, and kill what is beyond its limits."""
        rows = client.api.containers(size=True, filters={"label": f"{LABEL}={self.run_name}"})
        short = self._short_of(client)
        for row in rows:
            watched = self.seen.get(str(row["Id"])) or self._meet(client, str(row["Id"]))
            if watched is None:
                continue
            self.seen[watched.id] = watched
            watched.most_bytes = max(watched.most_bytes, int(row.get("SizeRw") or 0))
            if reason := self._beyond(watched) or short:
                watched.killed = watched.killed or reason
                with contextlib.suppress(APIError):
                    client.api.kill(watched.id)

    def _meet(self, client: DockerClient, container: str) -> Watched | None:
        """What the engine enforces on a container; None when it is gone already."""
        try:
            found = client.api.inspect_container(container)
        except APIError:
            return None
        host = found["HostConfig"]
        return Watched(
            id=container,
            name=str(found["Name"]).removeprefix("/"),
            image=str(found["Image"]),
            pids=host.get("PidsLimit") or None,
            memory_bytes=host.get("Memory") or None,
            cpu=host["NanoCpus"] / GIGABYTE if host.get("NanoCpus") else None,
        )

    def _beyond(self, watched: Watched) -> str:
        """Why a container may not go on; empty when it may."""
        if self.limits.pids is not None and watched.pids != self.limits.pids:
            return f"its limit of processes is {watched.pids}, not {self.limits.pids}"
        if self.limits.disk is not None and watched.most_bytes > self.limits.disk * GIGABYTE:
            return f"its files held {watched.most_bytes:,} bytes, and may hold {self.limits.disk:g} GB"
        return ""

    def _short_of(self, client: DockerClient) -> str:
        """What the machine is nearly out of, so that no container may go on; empty when of nothing."""
        reason = short_of_disk(Path(str(client.info()["DockerRootDir"])))
        return reason or short_of_memory(self.evaluator)


def guard(run_name: str, limits: DockerLimits, evaluator: int) -> Guard:
    """Watch the containers of a run from now on, until `Guard.end`.

    Args:
        run_name: The label of the containers.
        limits: What each is bounded to.
        evaluator: Process id of the keeper of the evaluator that starts them.
    """
    watching = Guard(run_name, limits, evaluator)
    watching.thread = threading.Thread(target=watching.watch, name="guard", daemon=True)
    watching.thread.start()
    return watching


def short_of_disk(folder: Path) -> str:
    """What the engine's disk is nearly out of; empty when of nothing, or when it cannot be seen from here."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    if disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES:
        return f"the engine's disk has less than {LEAST_FREE_BYTES:,} bytes left"
    if disk.f_files and disk.f_favail < disk.f_files * LEAST_FREE_SHARE:
        return f"the engine's disk has room for no more than {disk.f_favail:,} files"
    return ""


def short_of_memory(evaluator: int) -> str:
    """Whether the evaluator's processes fill the machine's memory; empty when they do not."""
    total, available = memory()
    if available >= total * LEAST_FREE_SHARE:
        return ""
    held = sum(resident(pid) for pid in {evaluator, *(pid for pid, _ in descendants(evaluator))})
    if held < total * HELD_SHARE:
        return ""
    return (
        f"the evaluator holds {held:,} bytes of what was sent to it, and the machine has {available:,} left"
    )


def memory() -> tuple[int, int]:
    """The machine's memory and what is available of it, in bytes."""
    fields = {}
    for line in Path("/proc/meminfo").read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024
    return fields["MemTotal"], fields["MemAvailable"]


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 when there is none."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
