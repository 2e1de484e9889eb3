"""The container that a server runs in: which one it is, and that it is the same throughout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_standin import IMAGE, STARTED, Engine, Served
from served import asked, record, verdict

from assay.run.container import search
from standin import Reply, StandIn
from toy_checkout import Toy

DIGESTS = ["registry.example/server@sha256:" + "2e" * 32]


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "engine.sock"


def port(server: StandIn) -> int:
    return int(server.base_url.removesuffix("/v1").rpartition(":")[2])


def test_the_container_that_publishes_the_port_is_recorded_and_only_looked_at(
    toy: Toy, runs: Path, socket: Path
) -> None:
    with StandIn() as server:
        there = port(server)
        containers = [
            Served("other", [("0.0.0.0", there + 1, "tcp")]),
            Served("datagrams", [("0.0.0.0", there, "udp")]),
            Served("elsewhere", [("127.0.0.9", there, "tcp")]),
            Served("ended", [("127.0.0.1", there, "tcp")], status="exited"),
            Served("serving", [("127.0.0.1", 1, "tcp"), ("127.0.0.1", there, "tcp")]),
        ]
        with Engine(socket, containers) as engine:
            done = asked(toy, server, runs, **engine.variables)
        assert done.code == 0, done.err
        assert {method for method, _ in engine.asked} == {"GET"}
    for name in ("first.before", "first.after", "second.before", "second.after"):
        found = record(done, name)
        assert found["container_search"] == f"it publishes port {there}"
        assert found["container"] == {
            "id": containers[-1].id,
            "name": "serving",
            "image": "server:latest",
            "image_id": IMAGE,
            "image_digests": DIGESTS,
            "state": "running",
            "started_at": STARTED,
            "restart_count": 0,
        }
    assert verdict(toy, done, "container")[0] == "PASS"
    assert f"serving ({containers[-1].id[:12]}) of image {IMAGE}" in verdict(toy, done, "container")[1]


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", ""])
def test_a_port_published_to_all_or_to_this_address_is_the_servers(
    monkeypatch: pytest.MonkeyPatch, socket: Path, address: str
) -> None:
    with Engine(socket, [Served("serving", [(address, 18020, "tcp")])]) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.variables["DOCKER_HOST"])
        found = search("http://127.0.0.1:18020/v1", None).container
        assert found is not None
        assert found.name == "serving"
        assert search("http://127.0.0.1:18021/v1", None).container is None


def test_where_no_container_can_be_seen_the_record_says_why(
    monkeypatch: pytest.MonkeyPatch, socket: Path
) -> None:
    here = "http://127.0.0.1:18020/v1"
    with Engine(socket, [Served("serving", [("0.0.0.0", 18020, "tcp")])]) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.variables["DOCKER_HOST"])
        away = search("http://192.0.2.1:18020/v1", None)
        assert engine.asked == []
        none = search("http://127.0.0.1:1/v1", None)
    gone = search(here, None)
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    remote = search(here, None)
    for found, said in (
        (away, "not on this machine"),
        (
            none,
            "no running container publishes port 1; one without a port is named by QWEN_SERVING_CONTAINER",
        ),
        (gone, "no Docker engine answers"),
        (remote, "DOCKER_HOST is not an engine of this machine"),
    ):
        assert found.container is None
        assert said in found.said


def test_a_server_in_no_container_is_unknown_to_the_audit_and_the_runs_own_is_not(
    toy: Toy, runs: Path, socket: Path
) -> None:
    with StandIn() as server, Engine(socket, []) as engine:
        done = asked(toy, server, runs, "second", **engine.variables)
        own = toy.run("run", "toy", "--runs", runs, "--json", **engine.variables)
    assert record(done)["container"] is None
    assert verdict(toy, done, "container")[0] == "UNKNOWN"
    assert verdict(toy, own, "container") == ("PASS", "none: the run started the server itself")


def test_the_named_container_is_the_servers_whatever_it_publishes(toy: Toy, runs: Path, socket: Path) -> None:
    with StandIn() as server:
        ports = [("127.0.0.1", port(server), "tcp")]
        containers = [Served("publishing", ports), Served("named", []), Served("still", [], status="paused")]
        with Engine(socket, containers) as engine:
            there = {**engine.variables, "QWEN_SERVING_CONTAINER": "named"}
            done = asked(toy, server, runs, "second", **there)
            absent = asked(toy, server, runs, "second", **{**there, "QWEN_SERVING_CONTAINER": "absent"})
            still = asked(toy, server, runs, "second", **{**there, "QWEN_SERVING_CONTAINER": "still"})
        gone = asked(toy, server, runs, "second", **there)
    assert done.code == 0, done.err
    assert record(done)["container"]["name"] == "named"
    assert record(done)["container_search"] == "QWEN_SERVING_CONTAINER names it"
    for refused, why in (
        (absent, "there is no such container"),
        (still, "it is paused"),
        (gone, "no Docker engine answers"),
    ):
        assert refused.code == 3
        assert why in refused.err
        assert "QWEN_SERVING_CONTAINER" in refused.err
        assert "Traceback" not in refused.err


def test_two_containers_that_may_be_the_servers_are_named(toy: Toy, runs: Path, socket: Path) -> None:
    with StandIn() as server:
        both = [Served(name, [("127.0.0.1", port(server), "tcp")]) for name in ("one", "two")]
        with Engine(socket, both) as engine:
            done = asked(toy, server, runs, "second", **engine.variables)
            assert server.requests == []
    assert done.code == 2
    assert f"2 running containers publish port {port(server)}: one, two" in done.err
    assert "export QWEN_SERVING_CONTAINER=NAME" in done.err


def restarted(container: Served) -> None:
    container.restarts += 1
    container.started = "2026-08-01T11:00:00Z"


def replaced(container: Served) -> None:
    container.name = "serving2"


def rebuilt(container: Served) -> None:
    container.image = "sha256:" + "3d" * 32


def ended(container: Served) -> None:
    container.status = "exited"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (restarted, "container.restart_count was 0, is 1"),
        (restarted, f'container.started_at was "{STARTED}", is "2026-08-01T11:00:00Z"'),
        (replaced, "container.name was"),
        (rebuilt, f'container.image_id was "{IMAGE}"'),
        (ended, "container.id was"),
    ],
)
def test_a_container_that_changes_during_an_entry_fails_the_run_and_is_named(
    toy: Toy, runs: Path, socket: Path, change: Callable[[Served], None], said: str
) -> None:
    container = Served("serving", [])

    def reply(number: int, body: dict[str, Any]) -> Reply:
        if number == 2:
            change(container)
        return Reply()

    with StandIn(reply=reply) as server:
        container.ports.append(("127.0.0.1", port(server), "tcp"))
        with Engine(socket, [container]) as engine:
            done = asked(toy, server, runs, "second", **engine.variables)
    assert done.code == 5
    assert done.json["counts"]["scored"] == 4
    assert any(said in problem for problem in done.json["problems"]), done.json["problems"]
    found = verdict(toy, done, "container")
    assert found[0] == "FAIL"
    assert said in found[1]


def test_an_engine_that_goes_away_leaves_the_server_unidentified(toy: Toy, runs: Path, socket: Path) -> None:
    with StandIn() as server:
        engine = Engine(socket, [Served("serving", [("127.0.0.1", port(server), "tcp")])])

        def reply(number: int, body: dict[str, Any]) -> Reply:
            if number == 2:
                engine.__exit__()
            return Reply()

        server.reply = reply
        engine.__enter__()
        done = asked(toy, server, runs, "second", **engine.variables)
    assert done.code == 5
    assert any("container.id was" in problem for problem in done.json["problems"])
    assert record(done, "second.after")["container_search"] == "not looked for: no Docker engine answers"
