"""uv at build time: the one that locks programs here, and the pinned one that goes into the image."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from assay.digest import sha256_file
from assay.errors import PrerequisiteError, VerificationError
from assay.paths import TOOLS
from assay.sandbox.images import UvPin
from assay.setup import tool


def run_uv(*words: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Run the checkout's uv and return what it printed.

    Args:
        words: Its arguments.
        environment: Variables over those that set-up gives it.

    Raises:
        PrerequisiteError: uv is missing, or it failed, e.g. because no package index answers.
        VerificationError: a digest did not match.
        RunError: the disk is full.
    """
    done = subprocess.run(
        [os.fspath(word) for word in (find_uv(), *words)],
        env={**tool.child_environment(), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise tool.failure(f"uv {words[0]} failed", done.stderr, done.returncode, "eval/scripts/sandbox")
    return done.stdout


def find_uv() -> Path:
    """The uv that set-up installed or found on PATH; PrerequisiteError when there is none."""
    ours = TOOLS / f"uv-{tool.VERSION}" / "bin" / "uv"
    found = tool.Uv(ours) if ours.is_file() else tool.on_path()
    if found is None:
        raise PrerequisiteError(f"uv {tool.VERSION} is not installed", "", "eval/scripts/setup")
    return found.path


def pinned_uv(pin: UvPin, folder: Path) -> Path:
    """Put the pinned uv into the folder, from its wheel, and return the program's path.

    Raises:
        PrerequisiteError: the package index cannot be reached.
        VerificationError: wheel or program are not the pinned ones.
    """
    requirement = folder / "uv.txt"
    requirement.write_text(f"uv=={pin.version} --hash=sha256:{pin.wheel_sha256}\n", "utf-8")
    target = folder / "uv-wheel"
    run_uv(
        *("pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
        *("--python-platform", pin.platform, "--target", target, "--requirement", requirement),
    )
    program = folder / "uv"
    shutil.copyfile(target / "bin" / "uv", program)
    program.chmod(0o755)
    shutil.rmtree(target)
    requirement.unlink()
    found = sha256_file(program)
    if found != pin.binary_sha256:
        raise VerificationError(
            f"the uv {pin.version} for the image is not the pinned one",
            f"its SHA-256 is {found}, pinned is {pin.binary_sha256}",
            "rm -r .assay/cache/uv, then eval/scripts/sandbox",
        )
    return program
