"""The int8 multiply peak of this machine, from `peak.cpp`, compiled on first use.

Contract: the peak is measured on as many threads at once as the figure it stands beside used; multiply-adds
a second, all of them together. None where the CPU lacks the instructions. "reference" is the loop that the
reference machine of `bench.floors` was measured with: no peak, but comparable with it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Literal

from assay.paths import CACHE, owned_directory
from server.build import find_compiler

SOURCE = Path(__file__).with_name("peak.cpp")
FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wl,--build-id=none")
MILLISECONDS = 150

Kind = Literal["avx2", "avx512", "reference"]
_KINDS: dict[Kind, int] = {"avx2": 0, "avx512": 1, "reference": 2}


def int8_peak(kind: Kind, threads: int) -> float | None:
    """Multiply-adds of bytes a second with so many threads, or None where the CPU cannot.

    Raises:
        RuntimeError: the source does not compile; the compiler's words are in the message.
        server.build.EngineError: there is no compiler.
    """
    function = _library().assay_peak_macs
    with ThreadPoolExecutor(threads) as pool:
        rates = list(pool.map(lambda _: float(function(_KINDS[kind], MILLISECONDS)), range(threads)))
    return sum(rates) if min(rates) > 0 else None


@cache
def _library() -> ctypes.CDLL:
    compiler = find_compiler()
    key = hashlib.sha256(SOURCE.read_bytes() + repr((compiler, FLAGS)).encode()).hexdigest()[:32]
    target = owned_directory(CACHE) / f"peak-{key}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "peak.so"
            done = subprocess.run(
                [compiler, *FLAGS, "-o", os.fspath(made), os.fspath(SOURCE)],
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            if done.returncode != 0:
                raise RuntimeError(f"{compiler} cannot compile {SOURCE.name}: {done.stderr[-2000:]}")
            made.replace(target)
    library = ctypes.CDLL(os.fspath(target))
    library.assay_peak_macs.restype = ctypes.c_double
    library.assay_peak_macs.argtypes = (ctypes.c_int32, ctypes.c_int32)
    return library
