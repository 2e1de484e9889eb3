"""`assay reproduce` with our own server: the real model says the same again, and a coarser one does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from again import held
from gguf import GGMLQuantizationType, GGUFReader

from assay.paths import CACHE
from tests.coordinator.suites import asking, write
from toy_checkout import ROOT, until

pytestmark = pytest.mark.slow

MODEL = "smollm2-135m"
WAIT_S = 400.0
# Of a block of 32 weights in Q4_1: scale and minimum as halves, then a nibble for each weight.
BLOCK, HEAD = 20, 4


def assay(*words: str | Path) -> tuple[int, dict[str, Any], str]:
    """Run the real command with `--json`: exit code, JSON object, diagnostics."""
    command = [sys.executable, "-m", "assay.cli", *map(str, words), "--json"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def run(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite's run that served the model itself: one job greedy, one drawn from a seed."""
    folder = tmp_path_factory.mktemp("real")
    targets = {"own": {"serve": MODEL, "max_concurrency": 2}}
    greedy = {"generation": {"temperature": 0, "max_tokens": 24}}
    drawn = {"generation": {"temperature": 0.9, "seed": 5, "max_tokens": 24}}
    jobs = [asking("greedy", "own", items=3) | greedy, asking("drawn", "own", items=3) | drawn]
    (folder / "runs").mkdir()
    suite = write(folder / "own.toml", targets, jobs, max_parallel_jobs=2)
    code, answer, err = assay("run", "--suite", suite, "--runs", folder / "runs")
    assert code == 0, err
    return Path(answer["run_dir"])


def test_the_same_model_is_served_again_and_says_the_same(run: Path) -> None:
    before = held(run)
    code, found, err = assay("reproduce", run, "-n", "6")
    assert code == 0, err
    assert found["counts"] == {"same": 6, "differs": 0, "drawn": 0, "unanswered": 0}
    assert found["server"]["differences"] == []
    assert all(each["usage"] is None for each in found["requests"])
    assert held(run) == before


def coarser(model: Path, path: Path) -> Path:
    """The same model with three bits of each weight where it had four, in the same layout."""
    shutil.copy(model, path)
    path.chmod(0o644)
    changed = 0
    for tensor in GGUFReader(path, "r+").tensors:
        if tensor.tensor_type == GGMLQuantizationType.Q4_1:
            tensor.data.reshape(-1, BLOCK)[:, HEAD:] &= 0xEE
            changed += 1
    assert changed
    return path


def test_a_coarser_quantisation_under_the_same_name_is_found_out(
    run: Path, model_path: Path, tmp_path: Path
) -> None:
    ready, log = tmp_path / "ready.json", tmp_path / "server.log"
    words = [sys.executable, "-m", "server", str(coarser(model_path, tmp_path / "coarse.gguf"))]
    words += ["--port", "0", "--ready-file", str(ready), "--name", MODEL, "--slots", "2"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            stdout=stream,
            stderr=stream,
            env={"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(CACHE)},
        )
    try:
        until(lambda: ready.exists() or process.poll() is not None, 300)
        assert process.poll() is None, log.read_text()
        there = f"http://127.0.0.1:{json.loads(ready.read_text())['port']}/v1"
        code, found, err = assay("reproduce", run, "--base-url", there, "-n", "6")
    finally:
        process.terminate()
        process.wait(60)
    assert (code, found["status"]) == (5, "differs"), err
    assert found["counts"]["differs"] >= 3
    named = {text.split(" was ")[0] for text in found["server"]["differences"]}
    assert {"identity.system_fingerprint", "identity.model.file_sha256"} <= named
