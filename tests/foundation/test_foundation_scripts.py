"""The shell commands: each starts the bootstrap, and none does while the shell is traced."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.name for path in (ROOT / "eval/scripts").iterdir() if os.access(path, os.X_OK))
CANARY = "canary-6d1f0b93"
BOOTSTRAP = """\
import sys
from pathlib import Path
Path(__file__).with_name("started").write_text(" ".join(sys.argv[1:]))
"""
# How a shell comes to be traced: the command's first words, and the environment.
TRACED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "bash -x": (("bash", "-x"), {}),
    "bash -o xtrace": (("bash", "-o", "xtrace"), {}),
    "SHELLOPTS": ((), {"SHELLOPTS": "braceexpand:hashall:xtrace"}),
    "BASH_ENV": ((), {"BASH_ENV": "traced"}),
    "BASH_XTRACEFD": ((), {"BASH_XTRACEFD": "2"}),
    "bash -x with its own descriptor": (("bash", "-x"), {"BASH_XTRACEFD": "1"}),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The scripts beside a bootstrap that only tells that it was started."""
    shutil.copytree(ROOT / "eval/scripts", tmp_path / "eval/scripts")
    (tmp_path / "eval/assay").mkdir()
    (tmp_path / "eval/assay/bootstrap.py").write_text(BOOTSTRAP)
    (tmp_path / "traced").write_text("set -x\n")
    return tmp_path


def call(checkout: Path, script: str, *before: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SHELLOPTS", "BASH_XTRACEFD", "BASH_ENV")
    }
    return subprocess.run(
        [*before, str(checkout / "eval/scripts" / script), "word"],
        env={**kept, "QWEN_API_KEY_FILE": CANARY, "QWEN_API_KEY": CANARY, **variables},
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_starts_the_bootstrap_with_its_verb(checkout: Path, script: str) -> None:
    done = call(checkout, script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (checkout / "eval/assay/started").read_text() == f"{script} word"


def test_a_script_is_found_by_a_link_and_by_its_bare_name(checkout: Path) -> None:
    link = checkout / "link"
    link.symlink_to(checkout / "eval/scripts/run")
    for words, cwd in (([str(link)], checkout), (["bash", "run"], checkout / "eval/scripts")):
        subprocess.run(words, cwd=cwd, check=True, timeout=60)
        (checkout / "eval/assay/started").unlink()


@pytest.mark.parametrize("traced", TRACED)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_refuses_to_run_under_shell_tracing(checkout: Path, script: str, traced: str) -> None:
    before, variables = TRACED[traced]
    done = call(checkout, script, *before, **variables)
    assert done.returncode == 2
    said = done.stderr.splitlines()[-3:]
    assert said[0].startswith("assay: error: the shell is traced")
    assert said[1].startswith("  why:  ")
    assert said[2].startswith("  next: ")
    assert CANARY not in done.stdout + done.stderr
    assert not (checkout / "eval/assay/started").exists()
