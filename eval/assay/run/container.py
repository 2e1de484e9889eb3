"""The container that a server runs in, as the Docker engine of this machine tells it.

Which one: the container that `QWEN_SERVING_CONTAINER` names, else the one running container that publishes
the endpoint's port. It is looked at through the engine's API, and never started, stopped or changed. It
identifies what runs, not the checkout that built it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import docker
from docker import DockerClient
from docker.errors import DockerException, NotFound
from pydantic import BaseModel, ConfigDict
from requests.exceptions import RequestException

from assay.errors import ConfigurationError, PrerequisiteError

VARIABLE = "QWEN_SERVING_CONTAINER"
ANSWER_WITHIN_S = 30
FAILURES = (DockerException, RequestException, OSError)
PORTS = {"http": 80, "https": 443}


class Container(BaseModel):
    """A container, as the engine describes it.

    Attributes:
        id: The whole id.
        name: Without the leading slash.
        image: The reference that it was started from.
        image_id: The id of its image.
        image_digests: By which names and digests the image was pulled or pushed; none for one that never was.
        state: `running`, or what else the engine says.
        started_at: When it was last started.
        restart_count: How often the engine has restarted it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    image: str
    image_id: str
    image_digests: tuple[str, ...]
    state: str
    started_at: str
    restart_count: int


@dataclass(frozen=True)
class Search:
    """What came of looking for a server's container.

    Attributes:
        container: The one that was found, None when the server is in none that can be seen.
        said: How it was found, or why not.
    """

    container: Container | None
    said: str


def search(base_url: str, named: str | None) -> Search:
    """Look for the container of the server at an address.

    Args:
        base_url: Where the server listens.
        named: The name or id of its container; None to look for the one that publishes the port.

    Raises:
        ConfigurationError: more than one container publishes the port.
        PrerequisiteError: the named container is not there or does not run.
    """
    if named:
        return Search(_named(named), f"{VARIABLE} names it")
    host = os.environ.get("DOCKER_HOST") or "unix://"
    if not host.startswith("unix://"):
        return Search(None, "not looked for: DOCKER_HOST is not an engine of this machine")
    parts = urlsplit(base_url)
    port = parts.port or PORTS[parts.scheme]
    local = _local_addresses(str(parts.hostname))
    if not local:
        return Search(None, "not looked for: the endpoint is not on this machine")
    try:
        with contextlib.closing(docker.from_env(timeout=ANSWER_WITHIN_S)) as client:
            found = [
                str(each["Id"])
                for each in client.api.containers(filters={"status": "running"})
                if any(_publishes(binding, port, local) for binding in each.get("Ports") or ())
            ]
            containers = [_inspect(client, identifier) for identifier in found]
    except FAILURES:
        return Search(None, "not looked for: no Docker engine answers")
    if len(containers) > 1:
        names = ", ".join(sorted(each.name for each in containers))
        raise ConfigurationError(
            f"{len(containers)} running containers publish port {port}: {names}",
            "only one of them is the server",
            f"export {VARIABLE}=NAME",
        )
    if containers:
        return Search(containers[0], f"it publishes port {port}")
    return Search(
        None, f"no running container publishes port {port}; one without a port is named by {VARIABLE}"
    )


def _named(name: str) -> Container:
    what = f"the serving container {name!r} cannot be identified"
    listing = f"docker ps; then export {VARIABLE}=NAME, or unset it"
    try:
        with contextlib.closing(docker.from_env(timeout=ANSWER_WITHIN_S)) as client:
            found = _inspect(client, name)
    except NotFound as error:
        raise PrerequisiteError(what, "there is no such container", listing) from error
    except FAILURES as error:
        raise PrerequisiteError(
            what, "no Docker engine answers", f"docker info; or unset {VARIABLE}"
        ) from error
    if found.state != "running":
        raise PrerequisiteError(what, f"it is {found.state}", listing)
    return found


def _inspect(client: DockerClient, name: str) -> Container:
    value: Mapping[str, Any] = client.api.inspect_container(name)
    state: Mapping[str, Any] = value["State"]
    try:
        digests = client.images.get(value["Image"]).attrs.get("RepoDigests")
    except NotFound:  # a running container outlives its image's name
        digests = None
    return Container(
        id=value["Id"],
        name=str(value["Name"]).lstrip("/"),
        image=value["Config"]["Image"],
        image_id=value["Image"],
        image_digests=tuple(sorted(digests or ())),
        state=state["Status"],
        started_at=state["StartedAt"],
        restart_count=value["RestartCount"],
    )


def _publishes(binding: Mapping[str, Any], port: int, local: frozenset[str]) -> bool:
    if binding.get("PublicPort") != port or binding.get("Type", "tcp") != "tcp":
        return False
    address = binding.get("IP")
    if not address:  # a rootless engine may leave it out
        return True
    bound = ipaddress.ip_address(address)
    if bound.is_unspecified:
        return any(ipaddress.ip_address(each).version == bound.version for each in local)
    return address in local


def _local_addresses(host: str) -> frozenset[str]:
    """The addresses of a host that are this machine's own."""
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return frozenset()
    return frozenset(address for address in found if _is_ours(address))


def _is_ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
