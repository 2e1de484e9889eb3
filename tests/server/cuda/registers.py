"""What ptxas says each kernel takes, out of a build's log; as a command it prints the table that gates it.

`python -m tests.server.cuda.registers > server/engine/cuda/registers.toml` writes the table anew; read the
difference before it is committed. Registers are given out in units of eight a thread; the table rounds up.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from server.build import LOG, SOURCES
from server.build_cuda import ensure_built_cuda

TABLE = SOURCES / "cuda" / "registers.toml"
GRANULE = 8
_KINDS = {
    "TensorType": {
        "0": "f32",
        "1": "f16",
        "2": "q4_0",
        "3": "q4_1",
        "6": "q5_0",
        "7": "q5_1",
        "8": "q8_0",
        "12": "q4_k",
        "13": "q5_k",
        "14": "q6_k",
        "30": "bf16",
        "1000": "w4_f16",
        "1001": "w4_bf16",
        "1002": "nvfp4",
    },
    "KvType": {"0": "f16", "1": "int8", "2": "q4"},
}
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Usage:
    """One kernel on one architecture."""

    architecture: str
    kernel: str
    registers: int
    shared_bytes: int
    spilled_bytes: int  # the stack frame and what is stored to it and loaded from it


def usages(library: Path) -> list[Usage]:
    """Returns what every kernel of a build takes, by architecture and name."""
    log = (library.parent / LOG).read_text()
    found = list(_parse(log))
    names = _demangled([usage.kernel for usage in found])
    return sorted(
        (
            Usage(u.architecture, name, u.registers, u.shared_bytes, u.spilled_bytes)
            for u, name in zip(found, names, strict=True)
        ),
        key=lambda usage: (usage.architecture, usage.kernel),
    )


def _parse(log: str) -> Iterator[Usage]:
    parts = _ENTRY.split(log)[1:]
    for symbol, architecture, text in zip(parts[0::3], parts[1::3], parts[2::3], strict=True):
        used, spills, shared = _USED.search(text), _SPILLS.search(text), _SHARED.search(text)
        assert used is not None, f"ptxas says nothing of the registers of {symbol}"
        assert spills is not None, f"ptxas says nothing of the spills of {symbol}"
        yield Usage(
            architecture,
            symbol,
            int(used.group(1)),
            0 if shared is None else int(shared.group(1)),
            sum(map(int, spills.groups())),
        )


def _demangled(symbols: list[str]) -> list[str]:
    tool = shutil.which("c++filt")
    assert tool is not None, "the C++ compiler's binutils bring c++filt"
    done = subprocess.run([tool, "-p", *symbols], capture_output=True, text=True, check=True)
    return [_short(name) for name in done.stdout.splitlines()]


def _short(name: str) -> str:
    """`qlinear_rows<q4_1, 8>` for a demangled name with namespaces, casts and parameters."""

    def spelled(match: re.Match[str]) -> str:
        return _KINDS[match.group(1)][match.group(2)]

    name = re.sub(r"\(assay::(\w+)\)(\d+)", spelled, name)
    name = re.sub(r"assay::cuda::(\(anonymous namespace\)::)?", "", name)
    return name.removeprefix("void ").partition("(")[0]


def table(found: list[Usage]) -> str:
    """Returns the table's text."""
    lines = [
        "# The most registers a thread and shared memory a block of each kernel may take; none may spill.",
        "# Made by `python -m tests.server.cuda.registers`; registers rounded up to their unit.",
    ]
    for architecture in sorted({usage.architecture for usage in found}):
        lines += ["", f"[{architecture}]"]
        for usage in found:
            if usage.architecture == architecture:
                limit = -(-usage.registers // GRANULE) * GRANULE
                lines.append(
                    f'"{usage.kernel}" = {{ registers = {limit}, shared_bytes = {usage.shared_bytes} }}'
                )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(usages(ensure_built_cuda().library)))
