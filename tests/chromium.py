"""The browser that the report's tests open reports in: Debian's, which this module installs if it is missing.

It installs from Debian's own packages, only as root and only what is missing, as `docker_engine` does.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from assay.errors import PrerequisiteError
from assay.paths import OWNED, owned_directory
from docker_engine import install, variables

PACKAGE = "chromium"
# A process that runs as root has no other sandbox to put a page in; what it opens is our own.
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


def program() -> Path:
    """Where the browser is.

    Raises:
        PrerequisiteError: it is not installed.
    """
    found = shutil.which(PACKAGE)
    if found is None:
        raise PrerequisiteError(
            f"the report's tests need {PACKAGE}", "", f"install it (Debian: apt-get install {PACKAGE})"
        )
    return Path(found)


def require() -> Path:
    """Where the browser is, installed first if it is missing.

    Raises:
        PrerequisiteError: it is missing, and cannot be installed here.
    """
    if shutil.which(PACKAGE) is None:
        install([PACKAGE], variables(), owned_directory(OWNED / "chromium") / "apt.log")
    return program()
