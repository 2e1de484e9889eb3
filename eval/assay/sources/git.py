"""Git, called so that nothing of the user's or of the repository's own choosing decides or runs anything.

Every call names its repository, reads no user or system configuration, asks for no credentials, and overrides
what a repository could set to have programs started: hooks, the file-system monitor, filters, pagers. It
needs nothing but the standard library, since a set-up calls it before any environment exists.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from assay.errors import PrerequisiteError
from assay.files import write_atomic
from assay.paths import CACHE, owned_directory

TRANSPORTS = ("file", "git", "http", "https")
STALLED_BYTES_S, STALLED_S = 1000, 60
SETTINGS: Mapping[str, str] = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.autocrlf": "false",
    "core.symlinks": "true",
    "core.fileMode": "true",
    "core.pager": "cat",
    "credential.helper": "",
    "protocol.version": "2",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}
"""In force over what the repository's own file says."""

PASSED_ON = frozenset({"GIT_SSL_CAINFO", "GIT_SSL_CAPATH"})
DROPPED = ("GIT_", "SSH_ASKPASS", "SETUPTOOLS_SCM_", "HATCH_")
# How Git comes to know that a directory of the site's may be read though another user owns it.
TRUSTED = "[safe]\n\tdirectory = {path}\n"


def environment(readable: Path | None = None) -> dict[str, str]:
    """The whole environment of a call.

    Args:
        readable: A repository that is read though its owner may be another user.
    """
    # Nothing can be made below it, whoever the user is.
    over = {"HOME": os.devnull, "XDG_CONFIG_HOME": os.devnull}
    if readable is not None:
        over["GIT_CONFIG_GLOBAL"] = str(trusting(readable))
    return guarded(os.environ) | over


def guarded(variables: Mapping[str, str]) -> dict[str, str]:
    """A child's environment, with what keeps Git (and builds that ask it for a version) to the pins."""
    kept = {key: value for key, value in variables.items() if not key.startswith(DROPPED)}
    kept |= {key: variables[key] for key in PASSED_ON if key in variables}
    settings: dict[str, str] = {"GIT_CONFIG_COUNT": str(len(SETTINGS))}
    for index, (key, value) in enumerate(SETTINGS.items()):
        settings[f"GIT_CONFIG_KEY_{index}"] = key
        settings[f"GIT_CONFIG_VALUE_{index}"] = value
    return {
        **kept,
        **settings,
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": ":".join(TRANSPORTS),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_HTTP_LOW_SPEED_LIMIT": str(STALLED_BYTES_S),
        "GIT_HTTP_LOW_SPEED_TIME": str(STALLED_S),
    }


def trusting(repository: Path) -> Path:
    """A configuration file of ours that lets Git read that repository whoever owns it."""
    path = owned_directory(CACHE / "tmp") / "git-readable"
    quoted = str(repository).replace("\\", "\\\\").replace('"', '\\"')
    write_atomic(path, TRUSTED.format(path=f'"{quoted}"').encode("utf-8"))
    return path


def words(path: Path, *arguments: str) -> list[str]:
    """The command line of a call on the checkout at that path, never on one further up."""
    return ["git", f"--git-dir={path / '.git'}", f"--work-tree={path}", *arguments]


def ask(path: Path, *arguments: str) -> bytes:
    """What Git answers about a checkout.

    Raises:
        PrerequisiteError: there is no Git.
        subprocess.CalledProcessError: Git refuses; its words are in `stderr`.
    """
    try:
        done = subprocess.run(
            words(path, *arguments),
            env=environment(),
            cwd=path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    except FileNotFoundError as error:
        raise PrerequisiteError(
            "there is no Git", str(error), "install Git (Debian: apt-get install git)"
        ) from error
    return done.stdout


def last_words(stderr: bytes | str) -> str:
    """The telling lines of what Git wrote, else its last one."""
    text = stderr.decode("utf-8", "replace") if isinstance(stderr, bytes) else stderr
    found = [line.strip() for line in text.splitlines() if line.strip()]
    telling = list(dict.fromkeys(line for line in found if "fatal: " in line or "error: " in line))
    return ", ".join(telling[-4:]) if telling else (found or ["it said nothing"])[-1]
