"""`server/gpu-check` without a GPU: the whole way on the emulated device, and what it says else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from server import gpu_check
from server.build import find_compiler
from server.build_cuda import ensure_built_emulated
from server.engine import Chunk, Engine
from server.random_hybrid import RandomHybrid
from server.random_model import RandomModel
from tests.server.engine import test_engine_model as golden

pytestmark = pytest.mark.slow

COMMAND = Path(gpu_check.__file__).with_name("gpu-check")


def run(*words: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def test_the_whole_way_on_the_emulated_device(emulated: Path, tmp_path: Path) -> None:
    done = run("--emulated", "--out", "figures.json", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "figures.json").read_text())
    assert (result["status"], result["isa"], result["failures"]) == ("passed", "cuda-emulated", [])
    assert set(gpu_check.PARTS) <= set(result)
    operations = {verdict["name"].split()[0] for verdict in result["golden"]}
    assert operations == {
        *("embed", "qlinear", "rmsnorm", "quantise", "silu_mul", "rope", "argmax", "sample"),
        *("kv_write", "attention", "head", "sigmoid_mul", "conv1d", "delta", "gated_norm"),
    }
    assert len(result["determinism"]) == 10
    for part in ("speed", "hybrid_speed"):
        assert [each["rows"] for each in result[part]["decode"]] == [1, 8]
        assert all(each["roof"] > 0 for each in result[part]["decode"])
        assert all(each["matrix_peak"] > 0 for each in result[part]["prefill"])
    assert "2 * copied bytes / seconds" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_work_beyond_its_time_is_ended_and_what_was_done_is_written(emulated: Path, tmp_path: Path) -> None:
    done = run("--emulated", "--seconds", "0.5", folder=tmp_path)
    assert done.returncode == 5
    result = json.loads((tmp_path / "gpu-check.json").read_text())
    assert "out of time" in result["status"]
    assert "speed" in result["status"]
    assert result["seconds"] < 60


@pytest.mark.parametrize(
    ("devices", "major", "version", "nvcc", "why"),
    [
        (0, 9, 13000, None, "the NVIDIA driver shows no GPU"),
        (1, 7, 13000, None, "compute capability 7.x; 8.0 and newer are served"),
        (1, 9, 13000, "nowhere-nvcc", "no CUDA compiler found"),
        (1, 9, 11080, None, "the driver serves CUDA 11, nvcc compiles for"),
    ],
)
def test_what_keeps_a_gpu_from_being_used_is_named(
    devices: int, major: int, version: int, nvcc: str | None, why: str, tmp_path: Path
) -> None:
    """Against a driver's library that says what it is told to."""
    source = tmp_path / "driver.c"
    source.write_text(
        "int cuInit(unsigned flags) { return flags; }\n"
        f"int cuDeviceGetCount(int *count) {{ *count = {devices}; return 0; }}\n"
        f"int cuDeviceGetAttribute(int *value, int which, int device) {{ *value = {major}; return 0; }}\n"
        f"int cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}\n"
    )
    library = tmp_path / "libcuda.so.1"
    subprocess.run([find_compiler(), "-x", "c", "-shared", "-fPIC", source, "-o", library], check=True)
    environment = {"LD_LIBRARY_PATH": str(tmp_path), **({} if nvcc is None else {"NVCC": nvcc})}
    done = run("--out", "never.json", folder=tmp_path, **environment)
    assert done.returncode == 3
    assert why in done.stderr
    assert not (tmp_path / "never.json").exists()


def test_without_a_driver_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(gpu_check.ctypes, "CDLL", absent)
    assert "no NVIDIA driver" in str(gpu_check.missing())
    assert gpu_check.main([]) == 3


def test_a_random_hybrid_is_what_its_shape_says(tmp_path: Path) -> None:
    path = tmp_path / "random.gguf"
    model = RandomHybrid()
    model.write(path)
    tokens = [(7 * index) % model.vocabulary for index in range(70)]
    exact = golden.Reference(path).logits(golden.np.array(tokens))
    with Engine(path, slots=1, isa="plain") as engine:
        given = engine.step([Chunk(0, 0, tokens, "all")]).logits
    assert abs(given - exact).max() < 0.05 * abs(exact).max()


@pytest.mark.parametrize("words", [("--seconds", "0"), ("--seconds", "4000"), ("--model", "nowhere.gguf")])
def test_bad_arguments_are_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    assert run(*words, folder=tmp_path).returncode == 2


def test_a_failed_check_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = {
        "status": "failed",
        "golden": [{"name": "embed q4_1", "passed": False}],
        "determinism": {"again": False},
        "failures": ["golden: embed q4_1", "determinism: again"],
        "seconds": 1.0,
    }
    assert gpu_check._failures(found) == found["failures"]
    monkeypatch.setattr(gpu_check, "check", lambda *_: found)
    assert gpu_check.main(["--emulated", "--out", str(tmp_path / "out.json")]) == 5


def test_a_random_model_is_what_its_shape_says(tmp_path: Path) -> None:
    """An independent reader and exact arithmetic take the file as the engine does."""
    path = tmp_path / "random.gguf"
    model = RandomModel()
    model.write(path)
    tokens = [(7 * index) % model.vocabulary for index in range(30)]
    exact = golden.Reference(path).logits(golden.np.array(tokens))
    with Engine(path, slots=1, isa="plain") as engine:
        given = engine.step([Chunk(0, 0, tokens, "all")]).logits
    assert abs(given - exact).max() < 0.05 * abs(exact).max()
    again = tmp_path / "again.gguf"
    model.write(again)
    assert again.read_bytes() == path.read_bytes()


def test_the_emulated_library_is_never_the_default() -> None:
    assert "cuda-emulated" not in str(ensure_built_emulated().library)
    assert Engine.__init__.__kwdefaults__["device"] == "cpu"
