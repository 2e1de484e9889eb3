"""Containers that a run's evaluator started, and what to do when it could not clean up after itself.

The evaluator labels each container with the run's name and removes it itself. After kill -9, or a second
Ctrl-C, nobody does: then the label finds them, and only them.
"""

from __future__ import annotations

import docker
from docker.errors import DockerException

LABEL = "verifiers.run"


def sweep(run_name: str) -> int:
    """Remove every container of the run, and return how many there were; 0 when no Docker answers."""
    removed = 0
    try:
        client = docker.from_env(timeout=60)
    except DockerException:
        return 0
    try:
        for container in client.containers.list(all=True, filters={"label": f"{LABEL}={run_name}"}):
            container.remove(force=True)
            removed += 1
    except DockerException:
        return removed
    finally:
        client.close()
    return removed
