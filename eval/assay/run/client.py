"""The `docker` that a run's evaluator finds first on PATH: the real client, with the run's label and limits.

Verifiers starts containers with the command-line client, and bounds processors and memory alone. So the run's
private folder holds a `docker` that hands every word on, and adds to `run` what bounds the rest from the
container's first moment, before anything in it has run:

- a label, by which the run's containers are found whatever that version of Verifiers writes on them;
- `--pids-limit`: where a fork bomb ends;
- `--ulimit fsize`, so that no file grows beyond the disk limit. Overlay2 has no quota on most file systems:
  the sum of a container's files is watched by `assay.run.guard`;
- `--ulimit core=0`, and `--log-driver none`: what a container writes to its first process's output would else
  lie on the engine's disk, outside of every limit. Verifiers reads none of it there;
- `--pull never`: an image that is missing is an error, not whatever its tag names today.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from assay.errors import PrerequisiteError
from assay.evaluator import DockerLimits

LABEL = "assay.run"
GIGABYTE = 1_000_000_000


def limit_words(run_name: str, limits: DockerLimits) -> list[str]:
    """What is added to each `docker run` of a run.

    Args:
        run_name: The run's name.
        limits: Of each container; what is None there is not bounded.
    """
    words = [
        "--label",
        f"{LABEL}={run_name}",
        "--log-driver",
        "none",
        "--pull",
        "never",
        "--ulimit",
        "core=0",
    ]
    if limits.pids is not None:
        words += ["--pids-limit", str(limits.pids)]
    if limits.disk is not None:
        words += ["--ulimit", f"fsize={int(limits.disk * GIGABYTE)}"]
    return words


def write_client(folder: Path, run_name: str, limits: DockerLimits) -> Path:
    """Write the client into a folder that comes first on the evaluator's PATH, and return its path.

    Args:
        folder: A private folder of the run.
        run_name: The run's name.
        limits: Of each container.

    Raises:
        PrerequisiteError: there is no docker client on PATH to hand on to.
    """
    real = shutil.which("docker")
    if real is None:
        raise PrerequisiteError(
            "there is no docker client on PATH", "", "apt-get install --no-install-recommends docker.io"
        )
    path = folder / "docker"
    path.write_text(
        "#!/bin/sh\n"
        f"# The limits of {run_name}: assay.run.client says why.\n"
        f"client={shlex.quote(str(Path(real).absolute()))}\n"
        '[ "$1" = run ] || exec "$client" "$@"\n'
        "shift\n"
        f'exec "$client" run {shlex.join(limit_words(run_name, limits))} "$@"\n',
        "utf-8",
    )
    path.chmod(0o755)
    return path
