"""Every check of the repository, one stage after the other: `eval/scripts/test [--fast | --long] [-- PYTEST
…]`.

It runs in the test environment, which the script has made by then. All stages run, whatever one of them
finds, so that one run tells everything; pytest's own summary is the last line. The tests run in two
processes (`beside` says what stays together); `-- -n 0` has them one after the other in one. Exit code: 0
all passed, 1 a check failed, 3 a prerequisite is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import beside
import chromium
import flake_lock
import lint
import profile_table
from assay.console import complain, say, step
from assay.errors import AssayError
from assay.models import fetch
from assay.paths import CACHE, CONFIGS, ROOT, owned_directory
from docker_engine import engine

BIN = Path(sys.executable).parent
MODEL = "smollm2-135m"
SELECTIONS = {
    "fast": "not slow and not docker and not long",
    "default": "not long",
    "long": "",
}


def run(*words: str | Path) -> bool:
    """Run a tool of the test environment in the root; whether it found nothing."""
    command = [os.fspath(word) for word in (BIN / words[0], *words[1:])]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0


def scripts() -> list[Path]:
    """Every shell file of the repository."""
    own = [ROOT / ".ci/run", ROOT / "server/gpu-check"]
    return [*sorted(path for path in (ROOT / "eval/scripts").iterdir() if path.is_file()), *own]


def stages() -> dict[str, Callable[[], bool]]:
    """The checks before pytest, by what they are called; each returns whether it found nothing."""
    cache = owned_directory(CACHE)
    ruff_cache = ("--cache-dir", cache / "ruff")
    return {
        "format (ruff)": lambda: run("ruff", "format", "--check", "--quiet", *ruff_cache, "."),
        "lint (ruff)": lambda: run("ruff", "check", "--quiet", *ruff_cache, "."),
        "strict types (mypy)": lambda: run("mypy", "--no-error-summary", "--cache-dir", cache / "mypy"),
        "shell (shellcheck)": lambda: run("shellcheck", "--external-sources", *scripts()),
        "locks": lambda: lint.report(lint.lock_problems()),
        "task data": lambda: lint.report(lint.data_problems()),
        "flake": lambda: lint.report(flake_lock.problems()),
        "profiles": lambda: lint.report(profile_table.problems(CONFIGS)),
        "no addresses": lambda: lint.report(lint.address_problems()),
        "README": lambda: lint.report(lint.readme_problems()),
        "tests beside each other": lambda: lint.report(beside.problems()),
    }


def check() -> list[str]:
    """Run every stage, print its seconds, and return the names of those that found something."""
    failed = []
    for name, stage in stages().items():
        begin = time.monotonic()
        passed = stage()
        say(f"assay: {name}: {'passed' if passed else 'FAILED'}, {time.monotonic() - begin:.1f} s")
        if not passed:
            failed.append(name)
    return failed


def pytest(selection: str, extra: Sequence[str]) -> int:
    """Run pytest over what the selection leaves; its exit status."""
    cache = owned_directory(CACHE)
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache / 'pytest'}", "--durations=5"]
    command += ["-n", str(beside.WORKERS), "--dist", "loadscope", "--no-loadscope-reorder"]
    if selection:
        command += ["-m", selection]
    environment = dict(os.environ, HYPOTHESIS_STORAGE_DIRECTORY=str(cache / "hypothesis"))
    sys.stdout.flush()
    return subprocess.run(
        [*command, *extra], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False
    ).returncode


def main() -> int:
    """Run it all and return the exit code."""
    # What is started in the background of a shell ignores Ctrl-C, and so would all that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        prog="eval/scripts/test", description="Run every check of the repository."
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--fast", action="store_const", const="fast", dest="form", help="without slow and Docker tests"
    )
    form.add_argument(
        "--long", action="store_const", const="long", dest="form", help="the long tests as well"
    )
    parser.add_argument("pytest", nargs="*", metavar="PYTEST", help="arguments for pytest, after --")
    parser.set_defaults(form="default")
    arguments = parser.parse_args()
    try:
        failed = check()
        with contextlib.ExitStack() as stack:
            with step(f"the model {MODEL}"):
                fetch(MODEL)
            if arguments.form != "fast":
                chromium.require()
                stack.enter_context(engine())
            if failed:
                say(f"assay: FAILED so far: {', '.join(failed)}")
            status = pytest(SELECTIONS[arguments.form], arguments.pytest)
    except AssayError as error:
        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 6
    return status or bool(failed)


if __name__ == "__main__":
    sys.exit(main())
