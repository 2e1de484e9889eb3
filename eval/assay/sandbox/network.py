"""The image that cuts egress: Verifiers runs it once in each container's network, as root, to set iptables.

Verifiers names it by a fixed tag and builds it from a registry when the tag is free. So the tag is given to
an image of our own: the sandbox's layer with root as its user. Another's image under that tag is left alone
and recorded by its identity.
"""

from __future__ import annotations

from docker import DockerClient

from assay.sandbox.load import inspect

TAG = "localhost/verifiers-network:1"
OURS = "localhost/assay-network:current"
ROLE = "assay.role"


def claim(client: DockerClient) -> tuple[str, bool]:
    """Give the tag to our network image unless another's has it; returns the id and whether it is ours."""
    found = inspect(client, TAG)
    if found is not None and not is_ours(found):
        return str(found["Id"]), False
    repository, _, tag = TAG.rpartition(":")
    ours = client.images.get(OURS)
    ours.tag(repository, tag)
    return str(ours.id), True


def is_ours(attributes: dict[str, object]) -> bool:
    """Whether an image was built here, by its label."""
    config = attributes.get("Config")
    labels = config.get("Labels") if isinstance(config, dict) else None
    return isinstance(labels, dict) and labels.get(ROLE) == "network"
