"""What bounds a container besides Verifiers: the client in front of the real one, and the guard beside it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import docker
import pytest
from docker import DockerClient
from docker.errors import NotFound

from assay import sandbox
from assay.errors import PrerequisiteError
from assay.evaluator import DockerLimits
from assay.run import guard as guarding
from assay.run.client import GIGABYTE, LABEL, write_client
from assay.run.containers import sweep
from assay.run.guard import Guard, guard

LIMITS = DockerLimits(workdir="/workspace", cpu=1, memory=1, pids=64, disk=0.05)
ECHO = '#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n'


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` on PATH that prints its words; returns the folder for the client in front of it."""
    real = tmp_path / "real ones" / "docker"
    real.parent.mkdir()
    real.write_text(ECHO)
    real.chmod(0o755)
    monkeypatch.setenv("PATH", f"{real.parent}:{os.defpath}")
    (tmp_path / "first").mkdir()
    return tmp_path / "first"


def said(client: Path, *words: str) -> list[str]:
    done = subprocess.run([client, *words], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_only_run_is_added_to_and_every_word_arrives_as_it_was(echo: Path) -> None:
    client = write_client(echo, "it's a run", LIMITS)
    odd = ["--env", "A=two words", "$(echo no)", "", "*"]

    assert said(client, "exec", *odd) == ["exec", *odd]
    assert said(client, "version") == ["version"]
    first, *added = said(client, "run", "--detach", *odd)
    assert first == "run"
    assert added[-6:] == ["--detach", *odd]
    assert added[:2] == ["--label", "assay.run=it's a run"]
    assert added[2:-6] == [
        *("--log-driver", "none", "--pull", "never", "--ulimit", "core=0"),
        *("--pids-limit", "64", "--ulimit", "fsize=50000000"),
    ]


def test_limits_that_an_evaluator_does_not_name_are_not_set(echo: Path) -> None:
    client = write_client(echo, "run", LIMITS.model_copy(update={"pids": None, "disk": None}))

    words = said(client, "run", "image")

    assert "--pids-limit" not in words
    assert not any(word.startswith("fsize") for word in words)
    assert {"--label", "--log-driver"} <= set(words)


def test_without_a_client_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(PrerequisiteError, match="no docker client"):
        write_client(tmp_path, "run", LIMITS)


def test_containers_of_a_record_that_nobody_saw_are_named() -> None:
    seen = {"abcdef012345678": guarding.Watched("abcdef012345678", "vf-1", "image", 64, None, None)}

    assert Guard("run", LIMITS, 1, seen).unseen(["abcdef012345", "0123456789ab"]) == ["0123456789ab"]


@pytest.fixture
def client() -> Iterator[DockerClient]:
    client = docker.from_env(timeout=60)
    yield client
    client.close()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts containers of a run through the bounding client, and removes them."""
    name = f"demo.{uuid4().hex}"
    image = sandbox.build("verifiers").image_id
    bounding = write_client(tmp_path, name, LIMITS)

    def start(*words: str) -> str:
        return said(bounding, "run", "--detach", *words, "--entrypoint", "sleep", image, "infinity")[0]

    start.__dict__["run_name"] = name
    yield start
    sweep(name)


def within(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


def running(client: DockerClient, container: str) -> bool:
    try:
        return client.containers.get(container).status == "running"
    except NotFound:
        return False


@pytest.mark.docker
@pytest.mark.slow
def test_a_container_is_held_to_its_limits_and_killed_where_none_holds_it(
    client: DockerClient, started: Callable[..., str]
) -> None:
    name = str(started.__dict__["run_name"])
    good, greedy = started(), started()
    # Another's word comes last in the client's line, and is what counts: seen, and killed.
    loose = started("--pids-limit", "1000")
    watching = guard(name, LIMITS, os.getpid())
    try:
        assert within(lambda: not running(client, loose))
        _, output = client.containers.get(good).exec_run(
            ["sh", "-c", "head -c 60M /dev/zero > /tmp/one; stat -c %s /tmp/one; rm /tmp/one; ulimit -c"]
        )
        client.containers.get(greedy).exec_run(
            ["sh", "-c", "for i in 1 2 3; do head -c 40M /dev/zero > /tmp/$i; done"], detach=True
        )
        assert within(lambda: not running(client, greedy))
    finally:
        watching.end()

    assert b"50000000" in output, "no file grows beyond the limit"
    assert output.strip().endswith(b"0"), "no core is dumped"
    assert running(client, good)
    found = {watched.id: watched for watched in watching.seen.values()}
    assert (found[good].pids, found[good].killed) == (LIMITS.pids, "")
    assert "limit of processes is 1000, not 64" in found[loose].killed
    assert found[greedy].most_bytes > LIMITS.disk * GIGABYTE if LIMITS.disk else False
    assert "0.05 GB" in found[greedy].killed
    assert client.containers.get(good).attrs["HostConfig"]["LogConfig"]["Type"] == "none"
    assert client.containers.get(good).labels[LABEL] == name
    assert len(watching.notes()) == 2


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("constants", "said"),
    [
        ({"LEAST_FREE_BYTES": 1 << 60}, "bytes left"),
        ({"LEAST_FREE_BYTES": 0, "LEAST_FREE_SHARE": 2.0, "HELD_SHARE": 2.0}, "files"),
    ],
)
def test_where_the_disk_is_nearly_used_up_no_container_of_the_run_goes_on(
    client: DockerClient,
    started: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    constants: dict[str, float],
    said: str,
) -> None:
    for name, value in constants.items():
        monkeypatch.setattr(guarding, name, value)
    container = started()
    watching = Guard(str(started.__dict__["run_name"]), LIMITS, os.getpid())

    watching.look(client)

    assert not running(client, container)
    assert said in watching.seen[container].killed


def test_an_evaluator_that_fills_the_machines_memory_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert guarding.short_of_memory(os.getpid()) == ""
    monkeypatch.setattr(guarding, "LEAST_FREE_SHARE", 2.0)
    assert guarding.short_of_memory(os.getpid()) == "", "this process holds little"
    monkeypatch.setattr(guarding, "HELD_SHARE", 0.0)
    assert "the evaluator holds" in guarding.short_of_memory(os.getpid())
