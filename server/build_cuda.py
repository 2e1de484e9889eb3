"""Compiles the engine's CUDA backend on first use: for devices with nvcc, or for tests on the processor.

Contract: :func:`ensure_built_cuda` returns a library with the C ABI of
``engine/assay_engine.h`` that computes on an NVIDIA GPU. It holds machine code
for each of :data:`ARCHITECTURES` and PTX for what comes after them; no GPU is
needed to compile it. :func:`ensure_built_emulated` compiles the same kernels
for the processor (``engine/cuda/emulation/``): threads of a block take turns, and
what a device would leave undefined is an error. That library is for tests and
never for serving. Both are kept, named and made like the CPU's (:mod:`server.build`).
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from server.build import (
    OUTPUT,
    SOURCES,
    EngineBuild,
    EngineError,
    compiler_words,
    find_compiler,
    make_once,
    source_digest,
)

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")

# One intermediate code for all: nothing newer than sm_80 is used, and it is made once.
_VIRTUAL = "compute_80"
# Of the CPU's engine.
_SHARED_SOURCES = (
    "config.cpp",
    "dequantise.cpp",
    "dequantise_abi.cpp",
    "description.cpp",
    "device_weights.cpp",
    "gguf.cpp",
    "head.cpp",
    "mapping.cpp",
    "metadata.cpp",
    "model_file.cpp",
    "plan.cpp",
    "plan_abi.cpp",
    "q8_block.cpp",
    "rope_row_abi.cpp",
    "row_source.cpp",
    "rows_abi.cpp",
    "run.cpp",
    "step_cost.cpp",
    "tensor_type.cpp",
    "vectors.cpp",
    "workspace.cpp",
)
_CUDA_ROOM = "cuda"
_EMULATION_ROOM = "cuda/emulation"
_HOST_FLAGS = ("-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")
_EMULATED_FLAGS = (
    "-O2",
    "-std=c++17",
    "-DASSAY_EMULATED",
    "-U_FORTIFY_SOURCE",  # its checked longjmp takes a change of fibers for an error
    "-Wno-unknown-pragmas",
    *_HOST_FLAGS,
)
_NVCC_FLAGS = (
    "-O3",
    "-std=c++17",
    "-fmad=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-ftz=false",
    "-Werror=all-warnings",
    "-Xptxas=-v",  # registers, spills and shared memory, into the build's log
)
_LINK_FLAGS = ("-shared", "-pthread", "-Wl,--build-id=none")


@dataclass(frozen=True)
class _Cuda:
    """The device's library."""

    nvcc: str
    host: str  # the C++ compiler behind it
    version: str
    source_sha256: str
    sources: tuple[Path, ...]
    architectures: tuple[str, ...]

    @property
    def flags(self) -> str:
        return " ".join(self._flags())

    def command(self, source: Path) -> list[str]:
        start = [self.nvcc, "-ccbin", self.host]
        if "__global__" in (SOURCES / source).read_text():
            return [*start, *self._flags()]
        # No kernel in it: an ordinary file of C++, in a third of the time.
        return [*start, "-x", "c++", "-O2", "-std=c++17", "-Xcompiler", ",".join(_HOST_FLAGS)]

    def link_command(self) -> list[str]:
        return [self.nvcc, "-ccbin", self.host, "-shared", "-cudart=static", "-Xlinker", "--build-id=none"]

    def _flags(self) -> list[str]:
        return [*_NVCC_FLAGS, "-Xcompiler", ",".join(_HOST_FLAGS), *code_flags(self.architectures)]


@dataclass(frozen=True)
class _Emulated:
    """The same kernels for the processor."""

    compiler: str
    version: str
    source_sha256: str
    sources: tuple[Path, ...]

    @property
    def flags(self) -> str:
        return " ".join((*_EMULATED_FLAGS, *_LINK_FLAGS))

    def command(self, source: Path) -> list[str]:
        return [self.compiler, *_EMULATED_FLAGS, *(("-x", "c++") if source.suffix == ".cu" else ())]

    def link_command(self) -> list[str]:
        return [self.compiler, *_LINK_FLAGS]


def ensure_built_cuda(output: Path = OUTPUT, architectures: Sequence[str] = ARCHITECTURES) -> EngineBuild:
    """Returns the library for NVIDIA GPUs, compiling it when there is none.

    Args:
        output: where libraries are kept.
        architectures: what machine code is made for; newer devices compile the PTX at their first use.

    Raises:
        EngineError: nvcc was not found, or it failed (its own words are in the message).
    """
    files, units = _files(emulated=False)
    nvcc, host = find_nvcc(), find_compiler()
    release = next((line for line in compiler_words(nvcc) if "release" in line), "nvcc")
    version = f"{release.strip()}; {compiler_words(host)[0].strip()}"
    return make_once(_Cuda(nvcc, host, version, source_digest(files), units, tuple(architectures)), output)


def ensure_built_emulated(output: Path = OUTPUT) -> EngineBuild:
    """Returns the library of the kernels on the processor, compiling it when there is none.

    Raises:
        EngineError: no C++ compiler was found, or it failed (its own words are in the message).
    """
    files, units = _files(emulated=True)
    compiler = find_compiler()
    return make_once(
        _Emulated(compiler, compiler_words(compiler)[0].strip(), source_digest(files), units), output
    )


def find_nvcc() -> str:
    """Returns the path of nvcc: $NVCC, the one in PATH, or the one below $CUDA_HOME or /usr/local/cuda.

    Raises:
        EngineError: there is none; says how to get it.
    """
    homes = [home for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    asked = os.environ.get("NVCC")
    for name in (asked,) if asked else ("nvcc", *(str(Path(home) / "bin/nvcc") for home in homes)):
        path = shutil.which(name)
        if path is not None:
            return path
    tried = f"NVCC={asked}" if asked else "nvcc in PATH, $CUDA_HOME/bin and /usr/local/cuda/bin"
    raise EngineError(
        f"no CUDA compiler found (tried {tried}): the GPU's library is compiled on first use. "
        "Install the CUDA toolkit, 12.0 or newer, and put its bin folder in PATH; no GPU is needed for it"
    )


def code_flags(architectures: Sequence[str]) -> list[str]:
    """Returns nvcc's flags for machine code of the architectures and PTX for newer ones."""
    return ["-gencode", f"arch={_VIRTUAL},code=[{','.join((*architectures, _VIRTUAL))}]"]


def _files(*, emulated: bool) -> tuple[list[Path], tuple[Path, ...]]:
    """Returns every file that decides a library's bytes, and those of them that are compiled."""
    room = sorted((SOURCES / _CUDA_ROOM).rglob("*.cu*"))
    if not emulated:
        room = [path for path in room if path.parent != SOURCES / _EMULATION_ROOM]
    shared = [SOURCES / name for name in _SHARED_SOURCES]
    units = [*shared, *(path for path in room if path.suffix == ".cu")]
    files = sorted({*SOURCES.glob("*.h"), *shared, *room})
    return files, tuple(path.relative_to(SOURCES) for path in units)
