"""The shell a command was typed in: the pinned one, one made of another nixpkgs, or the machine's own.

The pinned shell says what it is in variables (`flake.nix`). Variables are no evidence, so they are held
against `flake.lock` and against where the programs really lie: only a shell of the locked nixpkgs, all of
whose programs lie in the Nix store, counts as pinned. What speaks against it is said, never guessed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from assay.digest import sha256_bytes
from assay.paths import ROOT
from assay.tools import Program

LOCK = ROOT / "flake.lock"
ENTER = "nix develop . --no-write-lock-file"
PROVIDED = ("python", "uv", "git", "jq", "docker", "c++")
"""What of the pinned shell a run can use, and what a shell is judged by."""

VARIABLES = (
    "ASSAY_NIX_SHELL",
    "ASSAY_NIXPKGS_REV",
    "ASSAY_NIXPKGS_NAR_HASH",
    "ASSAY_FLAKE_LOCK_SHA256",
)
"""What the shell says of itself: its name, its nixpkgs, and the lock that it was entered with."""

Kind = Literal["nix", "nix-override", "host"]


@dataclass(frozen=True)
class Lock:
    """`flake.lock`: its digest, and the revision and content hash of the nixpkgs it names."""

    sha256: str
    rev: str
    nar_hash: str


@dataclass(frozen=True)
class Shell:
    """What shell it is, and what that was judged by.

    Attributes:
        kind: "nix": the locked nixpkgs, and every program from the store. "nix-override": a shell of this
            flake that is not wholly that. "host": the machine's own programs.
        name: What the shell calls itself, "default" or "cuda"; None on the host.
        why: What speaks against "nix", each in a sentence; empty for it, and for a host that claims nothing.
        flake_lock_sha256: Digest of the checkout's lock; None when there is none that can be read.
        locked_rev: The revision of nixpkgs that the lock names.
        locked_nar_hash: The content hash the lock names.
        claimed_rev: The revision that the shell claims; empty for a nixpkgs without one.
        claimed_nar_hash: The content hash that the shell claims.
    """

    kind: Kind
    name: str | None
    why: tuple[str, ...]
    flake_lock_sha256: str | None
    locked_rev: str | None
    locked_nar_hash: str | None
    claimed_rev: str | None
    claimed_nar_hash: str | None

    @property
    def pinned(self) -> bool:
        """Whether the programs are the ones that `flake.lock` names."""
        return self.kind == "nix"

    def describe(self) -> dict[str, Any]:
        """Its attributes as JSON values, for a record."""
        return {**asdict(self), "why": list(self.why), "pinned": self.pinned}


def read_lock(path: Path = LOCK) -> Lock | None:
    """The lock of a checkout; None when it is not there or does not name a nixpkgs."""
    try:
        data = path.read_bytes()
        node = json.loads(data)["nodes"]["nixpkgs"]["locked"]
        return Lock(sha256_bytes(data), str(node["rev"]), str(node["narHash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def judge(
    programs: Mapping[str, Program | None],
    variables: Mapping[str, str] = os.environ,
    lock: Lock | None = None,
) -> Shell:
    """Say what shell this is.

    Args:
        programs: Those that are used; None for one that is not there. It is judged by `PROVIDED`.
        variables: The environment.
        lock: The lock of the checkout.
    """
    name = variables.get("ASSAY_NIX_SHELL") or None
    if name is None:
        return _shell("host", variables, lock, ())
    used = {key: programs.get(key) for key in PROVIDED}
    foreign = [
        f"{key} is not there" if item is None else f"{key} is {item.path}, which is not in the Nix store"
        for key, item in used.items()
        if item is None or item.store_path is None
    ]
    # Nix itself names the store of the shell it starts; a store elsewhere holds no pinned program.
    store = variables.get("NIX_STORE", "")
    entered = any(
        item.store_path is not None or (store and Path(item.found).is_relative_to(store))
        for item in used.values()
        if item is not None
    )
    if not entered:
        claim = f'ASSAY_NIX_SHELL says "{name}", but no program comes from a Nix store'
        return _shell("host", variables, lock, (claim, *foreign))
    why = (*_disagreements(variables, lock), *foreign)
    return _shell("nix-override" if why else "nix", variables, lock, why)


def _disagreements(variables: Mapping[str, str], lock: Lock | None) -> list[str]:
    """Where the shell's claims and the lock differ, each in a sentence."""
    if lock is None:
        return ["flake.lock is missing or names no nixpkgs"]
    found = []
    rev = variables.get("ASSAY_NIXPKGS_REV", "")
    if not rev:
        found.append("its nixpkgs has no revision: another was put in its place")
    elif rev != lock.rev:
        found.append(f"its nixpkgs is revision {rev}, but flake.lock names {lock.rev}")
    if variables.get("ASSAY_NIXPKGS_NAR_HASH") != lock.nar_hash:
        claimed = variables.get("ASSAY_NIXPKGS_NAR_HASH") or "nothing"
        found.append(f"its nixpkgs has the content hash {claimed}, but flake.lock names {lock.nar_hash}")
    if variables.get("ASSAY_FLAKE_LOCK_SHA256") != lock.sha256:
        found.append(f"flake.lock is not the one that it was entered with; leave it, then {ENTER}")
    return found


def _shell(kind: Kind, variables: Mapping[str, str], lock: Lock | None, why: tuple[str, ...]) -> Shell:
    return Shell(
        kind=kind,
        name=variables.get("ASSAY_NIX_SHELL") or None if kind != "host" else None,
        why=why,
        flake_lock_sha256=lock.sha256 if lock else None,
        locked_rev=lock.rev if lock else None,
        locked_nar_hash=lock.nar_hash if lock else None,
        claimed_rev=variables.get("ASSAY_NIXPKGS_REV"),
        claimed_nar_hash=variables.get("ASSAY_NIXPKGS_NAR_HASH"),
    )


def python_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What an environment's Python is started with, beside its own variables.

    Ready-built packages look for the C++ runtime, which a Python out of the Nix store finds only by this
    path. Outside the pinned shell it is empty.

    Args:
        variables: The environment.
    """
    libraries = variables.get("ASSAY_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": libraries} if libraries else {}


def begin_with_libraries() -> None:
    """Start this process's command again, once, where it was typed in the pinned shell without their path.

    The loader reads the path when a program begins, so setting it later would help nobody.
    """
    wanted = python_variables()
    if wanted and os.environ.get("LD_LIBRARY_PATH") != wanted["LD_LIBRARY_PATH"]:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **wanted})


def keep_from_children() -> None:
    """Take the libraries' path out of this process's environment: it was read when the process began.

    What it starts then (Git, the Docker client, a compiler) may be the machine's own, and must not load the
    shell's libraries.
    """
    wanted = python_variables()
    if wanted and os.environ.get("LD_LIBRARY_PATH") == wanted["LD_LIBRARY_PATH"]:
        del os.environ["LD_LIBRARY_PATH"]
