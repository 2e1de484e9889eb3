"""The Docker engine that runs the sandbox, and the client beside it.

Verifiers starts containers with the `docker` on PATH, Assay builds and checks the image through the engine's
API. A machine can have two clients, so the one that will be used is recorded by path, version and digest.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import docker
from docker import DockerClient
from docker.errors import DockerException
from requests.exceptions import RequestException, Timeout

from assay.digest import sha256_file
from assay.errors import PrerequisiteError

logger = logging.getLogger(__name__)

ANSWER_WITHIN_S = 30
WORK_WITHIN_S = 900
FAILURES = (DockerException, RequestException, OSError)
"""What a call to an engine can raise when the engine, the disk or the connection fails."""


@dataclass(frozen=True)
class DockerEngine:
    """An engine that answers, and the client that Verifiers will call.

    Attributes:
        client_path: The `docker` on PATH, links resolved.
        client_version: What it says of itself, as it says it.
        client_sha256: Digest of the program.
        server_version: The engine's version.
        storage_driver: How it stores layers.
        cgroup_version: "1" or "2".
        host: Where it listens.
    """

    client_path: str
    client_version: str
    client_sha256: str
    server_version: str
    storage_driver: str
    cgroup_version: str
    host: str

    def describe(self) -> dict[str, str]:
        """Its attributes as JSON values, for a record."""
        return asdict(self)


def engine() -> DockerEngine | None:
    """The engine if one answers on this machine and a client is on PATH, else None (the log says why)."""
    program = shutil.which("docker")
    if program is None:
        logger.info("no docker client on PATH")
        return None
    try:
        with connect() as client:
            info = client.info()
    except PrerequisiteError as error:
        logger.info("%s", error)
        return None
    path = Path(program).resolve()
    version = subprocess.run(
        [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return DockerEngine(
        client_path=str(path),
        client_version=version.stdout.strip(),
        client_sha256=sha256_file(path),
        server_version=str(info["ServerVersion"]),
        storage_driver=str(info["Driver"]),
        cgroup_version=str(info.get("CgroupVersion", "")),
        host=address(),
    )


def require_engine() -> DockerEngine:
    """The engine, or PrerequisiteError with what to install or start."""
    found = engine()
    if found is not None:
        return found
    if shutil.which("docker") is None:
        raise PrerequisiteError(
            "there is no docker client on PATH", "", "apt-get install --no-install-recommends docker.io"
        )
    raise PrerequisiteError(
        f"no Docker engine answers at {address()}", "it is stopped, or this user may not use it", "dockerd &"
    )


def address() -> str:
    """Where the engine is looked for: DOCKER_HOST, else the local socket."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


@contextmanager
def connect(timeout_s: int = ANSWER_WITHIN_S) -> Iterator[DockerClient]:
    """A connection to the engine on this machine.

    Args:
        timeout_s: Seconds any one call may take.

    Raises:
        PrerequisiteError: it is another machine's (Verifiers passes sockets through the file system),
            nothing answers there, or a call took longer.
    """
    if not address().startswith("unix://"):
        raise PrerequisiteError(
            f"DOCKER_HOST is {address()}, which is not a local socket",
            "the evaluator passes a socket into each container through a bind mount",
            "unset DOCKER_HOST, and start dockerd on this machine",
        )
    try:
        client = docker.from_env(timeout=timeout_s)
        client.ping()
    except FAILURES as error:
        raise PrerequisiteError(
            f"no Docker engine answers at {address()}", str(error).splitlines()[0], "dockerd &"
        ) from error
    try:
        yield client
    except Timeout as error:
        raise PrerequisiteError(
            f"the Docker engine at {address()} took more than {timeout_s} s over one answer",
            "it is busy, or hangs",
            "docker info, and then again",
        ) from error
    finally:
        client.close()
