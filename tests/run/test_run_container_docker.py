"""A server in a real container: the engine beside it tells which one it is, and when it was started again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import docker
import httpx
import pytest
from docker.models.containers import Container
from served import record, verdict

from assay import sandbox
from assay.run.container import search
from toy_checkout import ROOT, Toy, until

pytestmark = [pytest.mark.docker, pytest.mark.slow]

STANDIN = ROOT / "tests" / "standin.py"
# The stand-in at the container's own address, until the container is stopped.
SERVE = """\
import signal, socket, sys
sys.path.insert(0, "/standin")
from standin import StandIn
with StandIn(address=(socket.gethostbyname(socket.gethostname()), 8000)):
    signal.sigwait({signal.SIGTERM})
"""


@pytest.fixture
def image() -> sandbox.SandboxImage:
    return sandbox.build("verifiers", "debian")


@pytest.fixture
def serving(image: sandbox.SandboxImage) -> Iterator[tuple[Container, str]]:
    """A container that serves, and where."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = docker.from_env()
    container = client.containers.run(
        image.image_id,
        ["python3", "-c", SERVE],
        detach=True,
        init=True,
        ports={"8000/tcp": ("127.0.0.1", port)},
        volumes={str(STANDIN): {"bind": "/standin/standin.py", "mode": "ro"}},
        restart_policy={"Name": "always"},
    )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        until(lambda: answers(url))
        yield container, url
    finally:
        container.remove(force=True)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/models").status_code == 200
    except httpx.HTTPError:
        return False


def test_a_run_against_a_server_in_a_container_records_which_one(
    toy: Toy, runs: Path, serving: tuple[Container, str], image: sandbox.SandboxImage
) -> None:
    container, url = serving
    done = toy.run("run", "pair", "--base-url", url, "--model", "stand-in", "--runs", runs, "--json")
    assert done.code == 0, done.err
    assert done.json["counts"]["scored"] == 12
    container.reload()
    found = record(done, "second.after")["container"]
    assert found == {
        "id": container.id,
        "name": container.name,
        "image": image.image_id,
        "image_id": image.image_id,
        "image_digests": [],
        "state": "running",
        "started_at": container.attrs["State"]["StartedAt"],
        "restart_count": 0,
    }
    assert verdict(toy, done, "container")[0] == "PASS"


def test_a_restart_by_hand_and_one_by_the_engine_are_seen(serving: tuple[Container, str]) -> None:
    container, url = serving
    first = search(url, None).container
    container.restart(timeout=5)
    second = search(url, None).container
    container.exec_run(["python3", "-c", "import os; os.kill(-1, 9)"])  # all but its init
    until(lambda: (found := search(url, None).container) is not None and found.restart_count > 0)
    third = search(url, str(container.name)).container
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.id == second.id == third.id
    assert first.restart_count == second.restart_count == 0
    assert third.restart_count == 1
    assert first.started_at < second.started_at < third.started_at
