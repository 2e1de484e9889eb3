"""What a run makes outside its record is short enough to work, and is removed by it or by the next run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import docker
import pytest
from docker.errors import NotFound
from docker.models.containers import Container

from assay import sandbox
from assay.run.conduct import forget_the_dead, private_folder
from assay.run.containers import LABEL, sweep, sweep_ended
from assay.run.native import Scratch
from assay.run.state import EntryState, Owner, Phase, State, now, save_state, this_process


def test_a_socket_fits_into_the_temporary_folder_however_deep_the_checkout_lies(tmp_path: Path) -> None:
    place = tmp_path / ("deep" * 20) / ("deeper" * 10) / "demo-full.20261129T192746Z-ad6dfafc"
    place.mkdir(parents=True)
    scratch = Scratch(place)
    folder = scratch.temporary() / "vf-proxy-6oxfmhul"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "control.sock"))
    assert scratch.temporary() == folder.parent, "the same one each time"
    assert folder.parent.stat().st_mode & 0o077 == 0
    scratch.remove()
    assert not folder.parent.exists()
    assert not place.exists()


def test_runs_of_one_name_have_each_a_private_folder_of_its_own(tmp_path: Path) -> None:
    first, second = private_folder(tmp_path, "demo"), private_folder(tmp_path, "demo")
    (first.path / "key").write_text("mine")
    second.remove()
    forget_the_dead(tmp_path)
    assert (first.path / "key").read_text() == "mine"
    assert first.path.stat().st_mode & 0o077 == 0


@pytest.fixture
def image() -> str:
    """An image that containers of this test are made of."""
    return sandbox.build("verifiers").image_id


@pytest.fixture
def kept(image: str) -> Iterator[list[Container]]:
    """Containers of a test, removed at its end."""
    made: list[Container] = []
    yield made
    for container in made:
        if there(container):
            container.remove(force=True)


def there(container: Container) -> bool:
    try:
        container.reload()
    except NotFound:
        return False
    return True


def recorded(runs: Path, phase: Phase, owner: Owner) -> str:
    """A run directory with nothing but a state; returns its name."""
    run = runs / f"demo.{uuid4().hex}"
    run.mkdir()
    entries = (EntryState(name="reasoning-gym", planned=1),)
    save_state(run, State(profile="demo", phase=phase, owner=owner, started_at=now(), entries=entries))
    return run.name


@pytest.mark.docker
def test_containers_of_a_run_that_ended_go_and_those_of_others_stay(
    image: str, kept: list[Container], tmp_path: Path
) -> None:
    dead = Owner(pid=1, start_ticks=0, boot_id="another")
    names = {
        "killed": recorded(tmp_path, "running", dead),
        "failed": recorded(tmp_path, "failed", this_process()),
        "live": recorded(tmp_path, "running", this_process()),
        "elsewhere": f"demo.{uuid4().hex}",
        "up": "..",
    }
    client = docker.from_env()
    made = {}
    for what, name in names.items():
        made[what] = client.containers.create(image, ["true"], labels={LABEL: name})
        kept.append(made[what])
    assert sweep_ended(tmp_path) == 2
    assert {what for what, container in made.items() if there(container)} == {"live", "elsewhere", "up"}
    assert sweep(names["live"]) == 1
    assert {what for what, container in made.items() if there(container)} == {"elsewhere", "up"}
    assert sweep_ended(tmp_path) == 0


def test_without_an_engine_nothing_is_swept_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert sweep("demo.x") is None
    assert sweep_ended(tmp_path) is None
