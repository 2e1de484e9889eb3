"""`server/gpu-check`: is this machine's GPU served rightly, and how fast? One JSON in at most six minutes.

Contract: it compiles the CUDA library and its emulation, holds every operation
against the CPU's reference and the emulated kernels (:mod:`server.gpu_golden`),
runs a small model alone and in company (the answers must be the same bytes) and beside
the emulation, and measures decode and prefill of a model of random weights against
the device's own copy bandwidth and matrix peak (:mod:`server.gpu_speed`). It
downloads nothing and uses plain allocations. The work is done by a child process
that appends each finished part to a file; when the time is up the child is ended
and what it had finished is written, so that a device that hangs costs no more
than the budget.

Exit code: 0 all passed; 2 bad arguments; 3 no GPU, driver or compiler; 5 a check failed or did not end
in time. `--emulated` runs the same way with tiny sizes on the processor, for tests.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from server.build import EngineError, compiler_words
from server.build_cuda import find_nvcc

FORMULAS = {
    "copy_bytes_per_s": "2 * copied bytes / seconds",
    "decode roof": "rows * copy_bytes_per_s / (weight bytes + rows * kv bytes of the context)",
    "prefill operations_per_s": "2 * matrix parameters * tokens / seconds",
    "matrix_operations_per_s": "2 * 4096 * products (mma.sync m16n8k32 of int8) / seconds, measured",
    "sheet_int8_operations_per_s": "multiprocessors * clock * int8 operations a clock of the generation",
}
PARTS = ("device", "builds", "golden", "determinism", "roofs", "speed", "hybrid_speed")
_LONGEST_S = 350.0
_MAJOR_ATTRIBUTE = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR


def missing() -> str | None:
    """Returns what keeps a GPU from being used on this machine, or None."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 is not there): install it, then `nvidia-smi` shows the GPU"
    count, version, major = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the NVIDIA driver shows no GPU: see `nvidia-smi`, and whether CUDA_VISIBLE_DEVICES hides it"
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR_ATTRIBUTE, 0)
    if major.value < 8:
        return f"the first GPU has compute capability {major.value}.x; 8.0 and newer are served"
    try:
        words = " ".join(compiler_words(find_nvcc()))
    except EngineError as error:
        return str(error)
    driver.cuDriverGetVersion(ctypes.byref(version))
    release = re.search(r"release (\d+)\.(\d+)", words)
    if release is not None and version.value // 1000 < int(release.group(1)):
        return (
            f"the driver serves CUDA {version.value // 1000}, nvcc compiles for {release.group(1)}: install "
            "a newer driver, or set NVCC to an older toolkit's nvcc (12.0 or newer)"
        )
    return None


def check(arguments: Sequence[str], seconds: float) -> dict[str, Any]:
    """Runs the work in a child process for at most so long and returns everything it finished."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        parts = Path(folder) / "parts.jsonl"
        command = [sys.executable, "-m", "server.gpu_work", *arguments, "--parts", str(parts)]
        child = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            code: int | None = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        result: dict[str, Any] = {"version": 1, "formulas": FORMULAS}
        if parts.exists():
            for line in parts.read_text().splitlines():
                if line.endswith("}"):  # the last one may be torn
                    result.update(json.loads(line))
    left = [part for part in PARTS if part not in result]
    if code is None:
        result["status"] = f"out of time after {seconds:.0f} s; not done: {', '.join(left) or 'the end'}"
    elif code != 0:
        result["status"] = result.get("error", f"the work ended with exit code {code}")
    else:
        result["status"] = "failed" if _failures(result) or left else "passed"
    result["failures"] = _failures(result)
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def _failures(result: dict[str, Any]) -> list[str]:
    golden = [f"golden: {v['name']}" for v in result.get("golden", []) if not v["passed"]]
    same = [f"determinism: {k}" for k, passed in result.get("determinism", {}).items() if not passed]
    return golden + same


def _print(result: dict[str, Any]) -> None:
    say = sys.stdout.write
    if "device" in result:
        device = result["device"]
        say(f"device: {device['name']}, {device['multiprocessors']} multiprocessors, {result['isa']}\n")
    if "golden" in result:
        say(f"golden: {sum(v['passed'] for v in result['golden'])} of {len(result['golden'])} passed\n")
    for name, passed in result.get("determinism", {}).items():
        say(f"determinism: {name}: {'passed' if passed else 'FAILED'}\n")
    if "roofs" in result:
        roofs = result["roofs"]
        say(f"copy: {roofs['copy_bytes_per_s'] / 1e9:.1f} GB/s = {FORMULAS['copy_bytes_per_s']}\n")
        say(f"matrix: {roofs['matrix_operations_per_s'] / 1e12:.2f} Tops/s = ")
        say(f"{FORMULAS['matrix_operations_per_s']}\n")
    for part, of in (("speed", ""), ("hybrid_speed", " of a hybrid")):
        _print_speed(result.get(part, {}), of)
    say(f"gpu-check: {result['status']}, {result['seconds']} s\n")


def _print_speed(found: dict[str, Any], of: str) -> None:
    say = sys.stdout.write
    for each in found.get("decode", []):
        say(f"decode{of}, {each['rows']} rows at {each['context']}: {each['tokens_per_s']:.1f} tok/s, ")
        say(f"{each['roof']:.0%} of {FORMULAS['decode roof']}\n")
    for each in found.get("prefill", []):
        say(f"prefill{of}, {each['tokens']} tokens: {each['tokens_per_s']:.1f} tok/s, ")
        say(
            f"{each['matrix_peak']:.0%} of the matrix peak, counting {FORMULAS['prefill operations_per_s']}\n"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks, prints, writes the JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="server/gpu-check", description="Test and measure this machine's GPU."
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="where the JSON goes")
    parser.add_argument("--seconds", type=float, default=_LONGEST_S, help="the time budget, at most 350")
    parser.add_argument("--model", type=Path, help="measure with this GGUF file too, decode only")
    parser.add_argument("--emulated", action="store_true", help="on the processor, tiny: tests this command")
    options = parser.parse_args(arguments)
    if not 0 < options.seconds <= _LONGEST_S:
        parser.error(f"--seconds {options.seconds} is not above 0 and at most {_LONGEST_S:.0f}")
    if options.model is not None and not options.model.is_file():
        parser.error(f"--model {options.model} is no file")
    why = None if options.emulated else missing()
    if importlib.util.find_spec("numpy") is None:
        why = "numpy is missing: run eval/scripts/setup first"
    if why is not None:
        sys.stderr.write(f"gpu-check: {why}\n")
        return 3
    words = [*(["--emulated"] if options.emulated else [])]
    words += ["--model", str(options.model.resolve())] if options.model is not None else []
    result = check(words, options.seconds)
    temporary = options.out.with_name(options.out.name + ".part")
    temporary.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    temporary.replace(options.out)
    _print(result)
    for failure in result["failures"]:
        sys.stderr.write(f"gpu-check: {failure}\n")
    return 0 if result["status"] == "passed" else 5


if __name__ == "__main__":
    sys.exit(main())
