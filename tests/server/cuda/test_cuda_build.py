"""The GPU's library: compiled for every architecture without a warning, no kernel beyond its table."""

from __future__ import annotations

import ctypes
import tomllib
from pathlib import Path

import pytest

from server import build
from server.build import EngineError
from server.build_cuda import ARCHITECTURES, ensure_built_cuda, ensure_built_emulated, find_nvcc
from tests.server.cuda import registers


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return ensure_built_cuda().library
    except EngineError as error:
        pytest.fail(f"the GPU's library is compiled here too: {error}")


def test_no_kernel_spills_or_outgrows_its_table(library: Path) -> None:
    limits = tomllib.loads(registers.TABLE.read_text())
    found = registers.usages(library)
    assert {usage.architecture for usage in found} == set(ARCHITECTURES)
    assert {(usage.architecture, usage.kernel) for usage in found} == {
        (architecture, kernel) for architecture, kernels in limits.items() for kernel in kernels
    }
    for usage in found:
        limit = limits[usage.architecture][usage.kernel]
        assert usage.spilled_bytes == 0, usage
        assert usage.registers <= limit["registers"], usage
        assert usage.shared_bytes <= limit["shared_bytes"], usage


def test_a_spill_in_the_log_is_seen(tmp_path: Path) -> None:
    (tmp_path / build.LOG).write_text(
        "ptxas info    : Compiling entry function '_Z4slowv' for 'sm_86'\n"
        "    24 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 28672 bytes smem, 437 bytes cmem[0]\n"
    )
    assert registers.usages(tmp_path / "library.so") == [registers.Usage("sm_86", "slow", 255, 28672, 108)]


def test_the_library_has_the_whole_interface_and_says_what_is_missing(library: Path) -> None:
    loaded = ctypes.CDLL(str(library))
    for header in ("assay_engine.h", "assay_ops.h", "assay_hybrid_ops.h", "cuda/assay_cuda.cuh"):
        text = (build.SOURCES / header).read_text()
        for line in text.splitlines():
            if line.startswith("ASSAY_EXPORT"):
                assert hasattr(loaded, line.partition("(")[0].split()[-1].lstrip("*")), line


def test_kernels_and_their_emulation_are_libraries_apart(library: Path) -> None:
    emulated = ensure_built_emulated()
    assert emulated.library != library
    assert "-DASSAY_EMULATED" in emulated.flags.split()
    assert "fast" not in ensure_built_cuda().flags
    assert {"-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"} <= set(
        ensure_built_cuda().flags.split()
    )


def test_no_nvcc_is_an_error_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NVCC", "nowhere-nvcc")
    with pytest.raises(EngineError, match=r"tried NVCC=nowhere-nvcc.*Install the CUDA toolkit"):
        find_nvcc()
