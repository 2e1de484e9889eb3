"""The engine's own tests, and its threads, with a sanitizer watching every memory access."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.build import RELEASE, SANITIZED, EngineError, ensure_built, find_compiler
from tests.server.engine.conftest import backends
from tests.server.engine.tiny import TinyModel
from tests.server.engine.tiny_qwen import TinyQwen35
from tests.server.fuzz.opening import OPTIONS, Opener, build_driver

pytestmark = pytest.mark.slow

ENGINE_TESTS = Path(__file__).parents[1] / "engine"


def test_an_unknown_sanitizer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_ENGINE_SANITIZER", "adress")
    with pytest.raises(EngineError, match=r"'adress'.*one of address, thread"):
        ensure_built(tmp_path)


def test_a_sanitized_library_is_another_one_with_the_same_arithmetic() -> None:
    served = ensure_built(variant=RELEASE)
    for variant in SANITIZED.values():
        flags = (*served.flags.split(), *variant.flags)
        assert "-ffp-contract=off" in flags
        assert not {"-Ofast", "-ffast-math"} & set(flags)
        assert not set(variant.flags) & set(served.flags.split())


def compilers_own(library: str) -> str:
    """The path of a library that comes with the compiler."""
    command = [find_compiler(), f"-print-file-name={library}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(path).is_absolute(), f"the C++ compiler brings {library}"
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    "test", ["test_engine_operations.py", "test_engine_step.py", "test_engine_gguf.py", "test_engine_rows.py"]
)
def test_the_engines_tests_pass_under_the_address_sanitizer(test: str) -> None:
    # Beside its own, the sanitizer needs the library of exceptions, which Python does not bring.
    runtime = " ".join(map(compilers_own, ("libasan.so", "libstdc++.so")))
    # Leaks of the interpreter are not ours, and a closed engine's memory waits in quarantine.
    options = f"{OPTIONS['ASAN_OPTIONS']}:detect_leaks=0:max_allocation_size_mb=4096:quarantine_size_mb=1"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(ENGINE_TESTS / test)],
        env={
            **os.environ,
            "ASSAY_ENGINE_SANITIZER": "address",
            "LD_PRELOAD": runtime,
            "ASAN_OPTIONS": options,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", sorted(SANITIZED))
def test_steps_of_many_threads_run_clean_with_every_instruction_set(sanitizer: str, tmp_path: Path) -> None:
    """Under `thread` a data race in the team, its phases or a step ends the opener."""
    driver = build_driver(SANITIZED[sanitizer], tmp_path)
    for model in (
        TinyModel(),
        TinyModel(heads=4, kv_heads=2, tied=False),
        TinyModel(layers=5, head_dim=64),
        TinyQwen35(),
    ):
        model.write(tmp_path / "model.gguf")
        data = (tmp_path / "model.gguf").read_bytes()
        for isa in backends():
            with Opener(driver, isa) as opener:
                for threads in (1, 2, 3, 5):
                    for int8 in (False, True):
                        assert opener.open(data, threads=threads, slots=2, int8=int8).served
