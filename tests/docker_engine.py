"""A Docker engine for the tests that need one: the one that answers, or one that this module installs and
starts.

It installs from Debian's own packages, only as root and only what is missing. An engine that it starts
keeps its data in the checkout, is a process group of its own, and is ended by its process id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from assay import process
from assay.console import say, step
from assay.errors import PrerequisiteError
from assay.paths import OWNED, ROOT, owned_directory, relative

PACKAGES = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "docker-registry": "docker-registry",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
}
START_WITHIN_S = 60
STAND_INS = ("python:3.11-alpine", "alpine:3.22")
"""Tags that the test pins give to images made here; production wants upstream's under them."""
NEXT = "start a Docker engine, or leave out what needs one: eval/scripts/test --fast"
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def answers() -> bool:
    """Whether an engine answers where the client looks for it."""
    try:
        client = docker.from_env(timeout=10)
    except (DockerException, RequestException):
        return False
    try:
        return bool(client.ping())
    except (DockerException, RequestException):
        return False
    finally:
        client.close()


def variables() -> dict[str, str]:
    """This process's environment with the administrator's programs on PATH and apt kept from asking."""
    path = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"
    return dict(os.environ, PATH=path, DEBIAN_FRONTEND="noninteractive")


def missing(environment: Mapping[str, str], running: bool) -> list[str]:
    """Debian packages whose program is not here; the engine itself counts only if none answers."""
    wanted = {
        package
        for program, package in PACKAGES.items()
        if shutil.which(program, path=environment["PATH"]) is None and not (running and program == "dockerd")
    }
    return sorted(wanted)


def install(packages: list[str], environment: Mapping[str, str], log: Path) -> None:
    """Install Debian packages.

    Raises:
        PrerequisiteError: this is not Debian, not root, or apt failed; the log has what it said.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        why = "only root on Debian can have them installed by the tests"
        raise PrerequisiteError(f"the Docker tests need {', '.join(packages)}", why, NEXT)
    with step(f"installing {', '.join(packages)} from Debian"), log.open("ab") as output:
        for command in (
            ["apt-get", "update"],
            ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, check=False
            )
            if done.returncode != 0:
                raise PrerequisiteError(f"{' '.join(command)} failed", f"see {relative(log)}", NEXT)


@contextmanager
def engine() -> Iterator[None]:
    """An engine that answers, for as long as the block lasts; one that was there before is left as it is.

    Raises:
        PrerequisiteError: none answers, and none can be installed or started here.
    """
    home = owned_directory(OWNED / "docker")
    environment = variables()
    packages = missing(environment, answers())
    if packages and (os.geteuid() == 0 or not answers()):
        install(packages, environment, home / "apt.log")
        if shutil.which("docker", path=environment["PATH"]) is None:
            install(["docker-cli"], environment, home / "apt.log")  # newer releases ship the client apart
    if answers():
        with lent_tags():
            yield
        return
    if os.geteuid() != 0:
        raise PrerequisiteError("no Docker engine answers, and only root can start one", "", NEXT)
    log = home / "dockerd.log"
    command = ["dockerd", "--data-root", str(home / "data"), "--pidfile", str(home / "dockerd.pid")]
    with log.open("wb") as output:
        daemon = process.start([*command, "--log-level", "warn"], env=environment, cwd=ROOT, stdout=output)
        try:
            with step("starting dockerd"):
                wait_for(daemon, log)
            yield
        finally:
            process.end(daemon, grace_s=30)
            say("assay: dockerd is ended")


@contextmanager
def lent_tags() -> Iterator[None]:
    """Take back the upstream tags given to stand-ins made here; a tag that was there before stays."""
    before = {tag for tag in STAND_INS if found(tag)}
    try:
        yield
    finally:
        for tag in STAND_INS:
            if tag not in before and found(tag):
                with contextlib.closing(docker.from_env(timeout=60)) as client:
                    client.images.remove(tag)


def found(tag: str) -> bool:
    """Whether an engine that answers has an image under a tag."""
    try:
        with contextlib.closing(docker.from_env(timeout=60)) as client:
            return bool(client.images.get(tag))
    except (DockerException, RequestException):
        return False


def wait_for(daemon: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the engine answers; PrerequisiteError when it ends or does not answer in time."""
    deadline = time.monotonic() + START_WITHIN_S
    while not answers():
        if daemon.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text("utf-8", errors="replace").strip().splitlines()
            raise PrerequisiteError(
                "dockerd does not start", "; ".join(lines[-2:]), f"{NEXT} ({relative(log)})"
            )
        time.sleep(0.5)
