"""The installer: uv at one version, and the way it is called.

A uv on PATH is used only if it is exactly that version; else the wheel that `tools.lock` pins by digest is
installed into the checkout by the pip of the chosen Python (or of a virtual environment, where the Python
itself has none). Everything a call writes stays below `.assay`; of the user's own settings only those about
reaching the package index pass, since any other could change what is installed.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.bootstrap import Interpreter
from assay.console import step
from assay.errors import AssayError, PrerequisiteError, RunError, VerificationError
from assay.paths import CACHE, ROOT, TOOLS, owned_directory, relative
from assay.tools import store_path

ASKED = Path(__file__).with_name("tools.in")
LOCK = Path(__file__).with_name("tools.lock")
VERSION = ASKED.read_text("utf-8").strip().removeprefix("uv==")
"""Written in `tools.in` alone: flake.nix reads that file too, and `tools.lock` is made from it."""

# What passes from the user's environment: how to reach the index, and nothing that says what to install.
NETWORK_SETTINGS = frozenset(
    {
        "UV_CONCURRENT_DOWNLOADS",
        "UV_CONFIG_FILE",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_HTTP_CONNECT_TIMEOUT",
        "UV_HTTP_RETRIES",
        "UV_HTTP_TIMEOUT",
        "UV_INDEX",
        "UV_INDEX_STRATEGY",
        "UV_INDEX_URL",
        "UV_INSECURE_HOST",
        "UV_KEYRING_PROVIDER",
        "UV_NATIVE_TLS",
        "UV_OFFLINE",
        "UV_SYSTEM_CERTS",
    }
)
# How pip and uv say that an archive is not the one that was asked for.
DAMAGE = ("hash mismatch", "do not match the hashes", "failed to extract archive")
DROPPED = ("UV_", "PYTHON", "VIRTUAL_ENV", "CONDA_", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")


@dataclass(frozen=True)
class Uv:
    """An executable uv of the pinned version."""

    path: Path


def child_environment() -> dict[str, str]:
    """The environment of every call: the user's, without what could change the result, and with our places.

    Raises:
        ConfigurationError: a link stands where `.assay` or its cache belongs.
    """
    cache = owned_directory(CACHE / "uv")
    temporary = owned_directory(CACHE / "tmp")
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in NETWORK_SETTINGS or key.startswith("UV_INDEX_") or not key.startswith(DROPPED)
    }
    if "PIP_INDEX_URL" in kept and not {"UV_DEFAULT_INDEX", "UV_INDEX_URL"} & set(kept):
        kept["UV_DEFAULT_INDEX"] = kept["PIP_INDEX_URL"]
    return kept | {
        "UV_CACHE_DIR": str(cache),
        "UV_LINK_MODE": "copy",  # a hard link would let an edited byte reach the cache as well
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "TMPDIR": str(temporary),
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }


class Runner:
    """Runs the set-up's children; each holds the set-up's lock until it ends.

    So a child that outlives a killed set-up keeps the next one waiting instead of writing beside it.
    """

    def __init__(self, lock_handle: int) -> None:
        self._lock_handle = lock_handle
        self._children: set[subprocess.Popen[bytes]] = set()
        self._guard = threading.Lock()
        self._ending = False

    def run(
        self, command: Sequence[str | Path], environment: Mapping[str, str], doing: str, again: str
    ) -> str:
        """Run one command to its end and return its standard output.

        Args:
            command: Program and arguments.
            environment: The child's whole environment.
            doing: What it does, for the error, e.g. "requirements.lock could not be installed".
            again: The command to type after the cause is gone.

        Raises:
            PrerequisiteError: it failed, e.g. since the index cannot be reached.
            VerificationError: a digest did not match.
            RunError: the disk is full.
        """
        with self._guard:
            if self._ending:
                raise KeyboardInterrupt
            child = subprocess.Popen(
                [os.fspath(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                env=dict(environment),
                pass_fds=(self._lock_handle,),
            )
            self._children.add(child)
        try:
            stdout, stderr = child.communicate()
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise
        finally:
            with self._guard:
                self._children.discard(child)
        if child.returncode != 0:
            raise failure(doing, stderr.decode("utf-8", "replace"), child.returncode, again)
        return stdout.decode("utf-8", "replace")

    def end(self) -> None:
        """Terminate every child that runs, and refuse to start others."""
        with self._guard:
            self._ending = True
            for child in self._children:
                child.terminate()


def failure(doing: str, stderr: str, status: int, again: str) -> AssayError:
    """What a failed call means, from what it wrote: a digest, the disk, or the machine."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    why = "\n        ".join(lines[-12:]) or f"exit status {status}, without a word"
    if any(os.strerror(code) in stderr for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)):
        return RunError(
            f"{doing}: the disk is full", why, f"free some space (see: df -h {ROOT}), then {again}"
        )
    if any(sign in stderr.lower() for sign in DAMAGE):
        return VerificationError(
            doing,
            why,
            f"what was downloaded is not what is locked, nothing of it was kept; try again: {again}",
        )
    return PrerequisiteError(doing, why, again)


def on_path() -> Uv | None:
    """The uv on PATH if it starts and is exactly the pinned version."""
    found = shutil.which("uv")
    return Uv(Path(found)) if found is not None and says_version(Path(found)) else None


def says_version(program: Path) -> bool:
    """Whether the program starts and says it is the pinned version."""
    try:
        child = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return child.returncode == 0 and child.stdout.split()[1:2] == [VERSION.encode()]


def ours() -> Path:
    """Where the installed uv lies."""
    return TOOLS / f"uv-{VERSION}" / "bin" / "uv"


def find() -> Uv | None:
    """The pinned uv that is here: the pinned shell's before what a set-up left, and that before PATH's."""
    elsewhere = on_path()
    if elsewhere is not None and store_path(elsewhere.path.resolve()) is not None:
        return elsewhere
    return Uv(ours()) if says_version(ours()) else elsewhere


def existing() -> Uv:
    """The pinned uv that is here.

    Raises:
        PrerequisiteError: there is none.
    """
    found = find()
    if found is None:
        raise PrerequisiteError(f"uv {VERSION} is not here", "", "eval/scripts/setup assay")
    return found


def installed() -> Path | None:
    """Where the pinned uv is; None when there is none yet."""
    found = find()
    return found.path if found else None


def obtain(interpreter: Interpreter, runner: Runner) -> Uv:
    """The pinned uv: from the checkout, from PATH, or installed now from its hash-pinned wheel.

    Raises:
        PrerequisiteError: neither the index nor a pip is at hand.
        VerificationError: the wheel is not the pinned one.
    """
    found = find()
    if found is not None:
        return found
    with step(f"uv {VERSION} from its wheel, by digest"):
        return install(interpreter, runner, ours().parents[1])


def install(interpreter: Interpreter, runner: Runner, home: Path) -> Uv:
    """Install the wheel aside and rename it into place; a half-made directory is never found there."""
    again = "eval/scripts/setup"
    environment = child_environment()
    # pip asks rustc for its version, and rustup's stand-in for it would make a directory in HOME.
    environment.setdefault("RUSTUP_HOME", environment["TMPDIR"])
    aside = owned_directory(TOOLS) / f".uv-{VERSION}"
    maker = TOOLS / ".pip"
    for leftover in (aside, maker, home):
        shutil.rmtree(leftover, ignore_errors=True)
    python = interpreter.path
    if not interpreter.pip:
        if not interpreter.ensurepip:
            raise PrerequisiteError(
                f"{python} has neither pip nor ensurepip, so uv {VERSION} cannot be installed",
                f"and no uv {VERSION} is on PATH",
                "install one of them (Debian: apt-get install python3-venv)",
            )
        runner.run([python, "-I", "-m", "venv", maker], environment, "a pip could not be made", again)
        python = str(maker / "bin" / "python")
    command: list[str | Path] = [
        python,
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
    ]
    command += ["--only-binary", ":all:", "--no-compile", "--target", aside, "--requirement", LOCK]
    runner.run(command, environment, f"uv {VERSION} ({relative(LOCK)}) could not be installed", again)
    shutil.rmtree(maker, ignore_errors=True)
    if not says_version(aside / "bin" / "uv"):
        raise PrerequisiteError(
            f"the wheel of uv {VERSION} does not run here",
            f"{aside}/bin/uv --version failed",
            f"install uv {VERSION} on PATH",
        )
    aside.rename(home)
    return Uv(home / "bin" / "uv")
