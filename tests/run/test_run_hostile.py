"""A model that attacks through its tool, in the pinned Verifiers' containers: the host survives it.

The endpoint is scripted, everything else is real: `assay run` on the agentic profile's graphwalks under the
test pins, the bash harness, the sandbox image with its limits, the engine. Each rollout is one attack; the
last is honest, and must come out as if the others had not been.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest
from docker import DockerClient
from docker.errors import DockerException
from docker.models.containers import Container
from requests.exceptions import RequestException

from assay import pinset, sandbox
from assay.planning import make_plan
from assay.profile import find_profile
from assay.reproduce import records
from assay.run.client import GIGABYTE, LABEL
from assay.view.open import open_run
from pinned.locks import PINS
from pinned.site import Site
from standin import Reply, StandIn

pytestmark = [pytest.mark.docker, pytest.mark.slow]

CANARY = "canary-93b0de77c1f4"
PIDS = 256
DISK = 1 * GIGABYTE
ROLLOUT_S = 25

DIAL = r"""
import json, os, socket, struct, sys, urllib.request
port, host = int(sys.argv[1]), sys.argv[2]
def attempt(action):
    try:
        action()
        return True
    except OSError:
        return False
def get(address):
    return lambda: urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=3)
def proxied(address):
    return lambda: urllib.request.urlopen(address, timeout=5)
print("FOUND" + json.dumps({
    "docker0": attempt(lambda: socket.create_connection((host, port), 3)),
    "the host's own address": attempt(lambda: socket.create_connection((sys.argv[3], port), 3)),
    "the host's loopback": attempt(lambda: socket.create_connection(("127.0.0.1", port), 3)),
    "another machine": attempt(lambda: socket.create_connection(("1.1.1.1", 443), 3)),
    "metadata": attempt(get("http://169.254.169.254/latest/meta-data/")),
    "names": attempt(lambda: socket.getaddrinfo("example.org", 443)),
    "datagrams": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (host, 53))),
    "docker0 through the proxy": attempt(proxied(f"http://{host}:{port}/")),
    "the host's loopback through the proxy": attempt(proxied(f"http://127.0.0.1:{port}/")),
    "packets": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
}))
"""
READ = r"""
import json, os, pathlib
def read(path):
    try:
        return pathlib.Path(path).read_bytes()[:200].decode("utf-8", "replace")
    except OSError:
        return None
def write(path):
    try:
        with open(path, "w") as file:
            file.write("1")
        return True
    except OSError:
        return False
PATHS = ("/var/run/docker.sock", "/run/docker.sock", "/run/vf/control.sock", "/dev/mem", "/dev/kmsg",
         "/dev/vda", "/dev/sda", "/dev/nvme0n1")
KERNEL = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper")
BOUND = ("/etc/resolv.conf", "/etc/hostname", "/etc/hosts")
status = pathlib.Path("/proc/self/status").read_text().splitlines()
mounts = [line.split()[:3] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
print("FOUND" + json.dumps({
    "user": os.getuid(),
    "first": read("/proc/1/cmdline"),
    "processes": sum(path.name.isdigit() for path in pathlib.Path("/proc").iterdir()),
    "there": [path for path in PATHS if os.path.exists(path)],
    "shadow": read("/etc/shadow"),
    "kernel": [path for path in KERNEL if write(path)],
    "capabilities": [line.split()[1] for line in status if line.startswith("CapEff")],
    "disks": [mount for mount in mounts if mount[0].startswith("/dev/") and mount[1] not in BOUND],
    "secrets": [name for name, value in os.environ.items() if "canary" in value],
}))
"""


@dataclass(frozen=True)
class Outcome:
    """What became of the run.

    Attributes:
        code: The command's exit code.
        answer: Its JSON object.
        run: Its directory.
        requests: What the model was asked, in order.
        peak: The most processes that a container had when it was looked at.
    """

    code: int
    answer: dict[str, Any]
    run: Path
    requests: list[dict[str, Any]]
    peak: int

    @property
    def rollouts(self) -> list[dict[str, Any]]:
        """The native record, a rollout a line."""
        lines = (self.run / "graphwalks/traces.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @property
    def containers(self) -> list[dict[str, Any]]:
        """What the run saw of its containers."""
        value = json.loads((self.run / "provenance/containers/graphwalks.json").read_bytes())
        return list(value["containers"])

    def said(self, attack: str) -> str:
        """What the tool answered to an attack's command."""
        for body in reversed(self.requests):
            for call, result in zip(body["messages"], body["messages"][1:], strict=False):
                if result["role"] == "tool" and attack in json.dumps(call):
                    return str(result["content"])
        raise AssertionError(f"nothing was answered to {attack}")

    def found(self, attack: str) -> dict[str, Any]:
        """What a probing program printed."""
        found: dict[str, Any] = json.loads(self.said(attack).partition("FOUND")[2])
        return found


def attacks(port: int, gateway: str) -> dict[str, list[str]]:
    """Each rollout's commands, in order; one that comes to their end answers."""
    return {
        "looks around": [
            f"python3 - {port} {gateway} {own_address(gateway)} <<'END' # dials\n{DIAL}\nEND",
            f"python3 - <<'END' # reads\n{READ}\nEND",
            "(head -c 300M /dev/zero > /proc/1/fd/1) 2>&1; ulimit -f; echo logged",
        ],
        "fills the disk": [
            "for i in $(seq 400); do head -c 50M /dev/zero > /tmp/fill-$i || break; done; sleep 60"
        ],
        "kills its harness": ["kill -9 $PPID; sleep 60"],
        "forks": [":(){ :|:& };: ; sleep 60"],
        "is honest": [],
    }


def own_address(gateway: str) -> str:
    """This host's address towards the world; the gateway's where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return gateway
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def client() -> Iterator[DockerClient]:
    client = docker.from_env(timeout=60)
    yield client
    client.close()


@pytest.fixture(scope="module")
def bystander(client: DockerClient) -> Iterator[Container]:
    """A container of another's on the same engine, with the same image and a name of Verifiers' form."""
    image = load_record().image_id
    container = client.containers.run(
        image, ["sleep", "infinity"], name=f"vf-{uuid4().hex[:12]}", detach=True
    )
    yield container
    container.remove(force=True)


def load_record() -> sandbox.SandboxImage:
    """The image of the test pins' prime-envs, built if need be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(pinset.VARIABLE, str(PINS))
        return sandbox.build("prime-envs")


@pytest.fixture(scope="module")
def outcome(
    pinned: Site, client: DockerClient, bystander: Container, tmp_path_factory: pytest.TempPathFactory
) -> Outcome:
    """The run, from its first question to its record."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_text(CANARY)
    (folder / "runs").mkdir()
    gateway = client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    lock = threading.Lock()
    begun: list[str] = []
    with socket.create_server(("0.0.0.0", 0)) as listener:
        scripts = list(attacks(listener.getsockname()[1], gateway).values())

        def reply(number: int, body: dict[str, Any]) -> Reply:
            asked = next(str(message["content"]) for message in body["messages"] if message["role"] == "user")
            turn = sum(message["role"] == "assistant" for message in body["messages"])
            with lock:
                if asked not in begun:
                    begun.append(asked)
                script = scripts[begun.index(asked)]
            return Reply(bash=script[turn]) if turn < len(script) else Reply(text="Final Answer: []")

        with StandIn(reply=reply, key=CANARY) as server, most_processes(client) as peak:
            (folder / "resolved.json").write_text(json.dumps(hostile_plan(server, len(scripts))))
            words = ["--runs", folder / "runs", "--json"]
            done = pinned.run("run", folder / "resolved.json", *words, QWEN_API_KEY_FILE=str(folder / "key"))
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert "run_dir" in answer, done.stderr
    return Outcome(done.returncode, answer, Path(answer["run_dir"]), server.requests, max(peak))


def hostile_plan(server: StandIn, tasks: int) -> dict[str, Any]:
    """The plan of the agentic profile's graphwalks with few tasks and little time, as a resolved run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(pinset.VARIABLE, str(PINS))
        plan = make_plan(
            find_profile("agentic"),
            "graphwalks",
            "docker",
            load_record().image_id,
            server.base_url,
            server.model,
            None,
        ).model_dump(mode="json")
    (entry,) = plan["entries"]
    text = entry["launch"]["entry.toml"].replace("num_tasks = 8", f"num_tasks = {tasks}")
    entry["launch"]["entry.toml"] = f"{text}\n[env.agent.timeout]\nrollout = {ROLLOUT_S}\n"
    entry["tasks"] = tasks
    assert isinstance(plan, dict)
    return plan


@contextmanager
def most_processes(client: DockerClient) -> Iterator[list[int]]:
    """How many processes any container of a run had, looked at again and again while the block lasts."""
    seen, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            for container in client.containers.list(filters={"label": LABEL}, ignore_removed=True):
                with contextlib.suppress(DockerException, RequestException, ValueError):
                    stats = client.api.stats(container.id, stream=False, one_shot=True)
                    seen.append(int(stats.get("pids_stats", {}).get("current") or 0))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def test_every_attack_ends_is_recorded_and_costs_no_other_rollout(outcome: Outcome) -> None:
    errors = [[str(error["message"]) for error in row["traces"][0]["errors"]] for row in outcome.rollouts]
    looked, filled, killed, forked, honest = (" ".join(words) for words in errors)

    assert [row["ok"] for row in outcome.rollouts] == [True, False, False, False, True], errors
    assert (looked, honest) == ("", "")
    assert "runtime died" in filled
    assert "exited 137" in killed
    assert "exceeded" in forked or "runtime" in forked or "exited" in forked
    assert outcome.code == 4
    counts = outcome.answer["counts"]
    assert (counts["planned"], counts["scored"], counts["errored"], counts["missing"]) == (5, 2, 3, 0)
    assert outcome.answer["problems"] == [], "every container was seen to be held to its limits"


def test_each_turn_can_be_asked_again_as_it_was_asked(outcome: Outcome) -> None:
    """`reproduce` builds from the record what was sent: messages, tools, their results, and sampling."""
    chosen = records.choose(open_run(outcome.run), 0, 99)

    built = [json.loads(each.request.body) for each in chosen.questions]
    assert chosen.left_out == ()
    assert sorted(each.of["turn"] for each in chosen.questions) == [1, 1, 2, 3, 4]
    assert [body for body in built if body not in outcome.requests] == []
    longest = [max(len(body["messages"]) for body in bodies) for bodies in (built, outcome.requests)]
    assert longest[0] == longest[1], "the whole rollout with its three results"


def test_nothing_can_be_reached_but_the_model(outcome: Outcome) -> None:
    found = outcome.found("# dials")

    assert len(found) == 10
    assert found == dict.fromkeys(found, False)


def test_nothing_of_the_host_can_be_read(outcome: Outcome) -> None:
    found = outcome.found("# reads")

    assert found["first"] == "sleep\0infinity\0"
    assert 0 < found["processes"] < 10, "of its own container alone"
    assert found["user"] == 10001
    assert set(found["capabilities"]) == {"0" * 16}
    assert (found["there"], found["kernel"], found["disks"], found["secrets"]) == ([], [], [], [])
    assert found["shadow"] is None


def test_a_fork_bomb_a_full_disk_and_an_endless_log_meet_the_declared_limits(outcome: Outcome) -> None:
    limits = json.loads((outcome.run / "provenance/containers/graphwalks.json").read_bytes())["limits"]
    assert (limits["pids"], limits["disk"] * GIGABYTE) == (PIDS, DISK)
    assert PIDS * 3 // 4 < outcome.peak <= PIDS, "the bomb went off, and met its bound"
    ended = [found for found in outcome.containers if found["killed"]]
    assert len(ended) == 1
    assert DISK < ended[0]["most_bytes"] < 3 * DISK
    assert any(ended[0]["name"] in note and "may hold 1 GB" in note for note in outcome.answer["notes"])
    assert {(found["pids"], found["cpu"]) for found in outcome.containers if found["cpu"]} == {(PIDS, 2.0)}
    assert str(DISK // 1024) in outcome.said("/proc/1/fd/1"), "ulimit -f, in blocks of 1,024 bytes"


def test_nothing_is_left_and_what_is_anothers_is_untouched(
    outcome: Outcome, client: DockerClient, bystander: Container
) -> None:
    bystander.reload()
    assert bystander.status == "running"
    label = f"{LABEL}={outcome.run.name}"
    assert client.containers.list(all=True, filters={"label": label}) == []
    assert client.images.list(), "the engine answers as before"
    for path in outcome.run.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
