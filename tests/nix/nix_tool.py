"""Nix for the tests: Debian's `nix-bin`, installed where it is missing, in a store of its own.

It runs without a daemon, /nix, build users or a substituter. Store, state, caches and configuration lie in a
temporary directory, and the flake's nixpkgs is the stand-in beside this file, made of the machine's own
programs. So nothing is fetched, and nothing outside the directory is written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from assay.bootstrap import candidates, probe
from assay.console import step
from assay.errors import PrerequisiteError
from assay.paths import ROOT
from assay.setup import tool

STAND_IN = Path(__file__).with_name("nixpkgs")
PACKAGE = "nix-bin"
TOOLS = ("bash", "c++", "cc", "docker", "g++", "gcc", "git", "jq", "nvcc", "shellcheck")
CONFIGURATION = """\
experimental-features = nix-command flakes
sandbox = false
build-users-group =
substituters =
flake-registry =
warn-dirty = false
"""


def install() -> None:
    """Install Nix from Debian where it is missing.

    Raises:
        PrerequisiteError: this is not Debian, not root, or apt failed.
    """
    if shutil.which("nix"):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        why = "only root on Debian can have it installed by the tests"
        raise PrerequisiteError("the tests of the pinned shell need nix", why, f"install {PACKAGE}")
    with step(f"installing {PACKAGE} from Debian"):
        for words in (["update"], ["install", "--yes", "--no-install-recommends", PACKAGE]):
            done = subprocess.run(
                ["apt-get", *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"),
                check=False,
            )
            if done.returncode != 0:
                raise PrerequisiteError(
                    f"apt-get {words[0]} failed", done.stderr.strip()[-300:], "apt-get update"
                )


def host_python(version: tuple[int, int]) -> str | None:
    """A Python of that release that this machine has; None when it has none."""
    for command, origin in candidates(None, ()):
        tried = probe(command, origin, version, version)
        if tried.interpreter is not None and not tried.reason:
            return tried.interpreter.path
    return None


def host() -> dict[str, object]:
    """What the stand-in is made of: programs by name, None for what this machine lacks."""
    programs: dict[str, str | None] = {name: shutil.which(name) for name in TOOLS}
    programs["shellcheck"] = str(Path(sys.executable).with_name("shellcheck"))
    programs["uv"] = str(tool.existing().path)
    programs["python3.12"], programs["python3.13"] = host_python((3, 12)), host_python((3, 13))
    return {"path": os.defpath, "programs": programs, "uv": tool.VERSION}


def copy_checkout(target: Path) -> Path:
    """A Git checkout of the files that this one tracks, as they are now; a flake must be in one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode("utf-8").split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    for words in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *words], cwd=target, stdin=subprocess.DEVNULL, check=True)
    return target


@dataclass(frozen=True)
class Nix:
    """Nix with a store of its own below a directory."""

    directory: Path

    @property
    def store(self) -> Path:
        """Its store."""
        return self.directory / "store"

    @property
    def nixpkgs(self) -> Path:
        """The stand-in, with what it is made of."""
        return self.directory / "nixpkgs"

    def environment(self, **variables: str) -> dict[str, str]:
        """What Nix runs with: nothing of the user's settings."""
        dropped = ("NIX_", "ASSAY_", "UV_", "PYTHON", "XDG_", "IN_NIX", "LD_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        places = {
            "HOME": "home",
            "NIX_CONF_DIR": "etc",
            "NIX_LOCALSTATE_DIR": "var",
            "NIX_LOG_DIR": "log",
            "NIX_STATE_DIR": "state",
            "NIX_STORE_DIR": "store",
            "TMPDIR": "tmp",
            "XDG_CACHE_HOME": "cache",
        }
        return {
            **kept,
            **{name: str(self.directory / place) for name, place in places.items()},
            "NIX_CONFIG": CONFIGURATION,
            "NIX_USER_CONF_FILES": os.devnull,
            **variables,
        }

    def plain(self, checkout: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `nix` in the checkout with the real lock; it must not need the network."""
        return subprocess.run(
            ["nix", *words],
            cwd=checkout,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def run(
        self, checkout: Path, verb: str, *words: str, after: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `nix VERB WORDS` in the checkout, with the stand-in for nixpkgs; `after` ends the line."""
        instead = ("--override-input", "nixpkgs", f"path:{self.nixpkgs}", "--no-write-lock-file")
        return self.plain(checkout, verb, *words, *instead, *after, **variables)

    def develop(self, checkout: Path, shell: str, *command: str, **variables: str) -> str:
        """What the command prints inside a shell of the flake, which must end with 0."""
        done = self.run(checkout, "develop", shell, after=("--command", *command), **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout


def make(directory: Path) -> Nix:
    """Install Nix if need be, and give it a directory.

    Raises:
        PrerequisiteError: there is no Nix, and none can be installed.
    """
    install()
    for name in ("home", "etc", "tmp"):
        (directory / name).mkdir()
    nix = Nix(directory)
    shutil.copytree(STAND_IN, nix.nixpkgs)
    (nix.nixpkgs / "host.json").write_text(json.dumps(host()), "utf-8")
    return nix
