"""A process that opens hostile model files under a sanitizer, and outlives all that are refused.

The engine is compiled with the sanitizer and `open_models.cpp` is linked against it; a file is sent as a
frame and answered with a line. Whatever ends the process (a report of the sanitizer, a signal, a file that
takes a minute) is an `AssertionError` that carries its last words.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from server.build import SOURCES, Variant, ensure_built, find_compiler

DRIVER = Path(__file__).with_name("open_models.cpp")
# Far above what a model of some kilobytes needs, far below what an unchecked length asks for.
MOST_ALLOCATION_MIB = 64
MOST_ADDRESS_SPACE_MIB = 1024
OPTIONS = {
    "ASAN_OPTIONS": f"max_allocation_size_mb={MOST_ALLOCATION_MIB}:detect_leaks=1:exitcode=97",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=97",
}
OK, BAD_FILE, UNSUPPORTED, BAD_ARGUMENT, NO_MEMORY, INTERNAL = range(6)


def build_driver(variant: Variant, folder: Path) -> Path:
    """Compile the library and the driver; the driver's path."""
    library = ensure_built(variant=variant).library
    target = folder / "open_models"
    subprocess.run(
        [
            *(find_compiler(), "-std=c++17", "-Wall", "-Wextra", *variant.flags, f"-I{SOURCES}"),
            *(str(DRIVER), str(library), f"-Wl,-rpath,{library.parent}", "-pthread", "-o", str(target)),
        ],
        check=True,
    )
    return target


@dataclass(frozen=True)
class Opened:
    """What became of one file."""

    status: int
    taken_mib: int  # address space that the open engine took
    message: str

    @property
    def served(self) -> bool:
        return self.status == OK


class Opener:
    """The process; `open` sends one file and returns its answer."""

    def __init__(self, driver: Path, isa: str | None = None) -> None:
        descriptor, name = tempfile.mkstemp(".log", "opener-", driver.parent)
        self._log = Path(name)
        environment = {**os.environ, **OPTIONS}
        environment.pop("OPEN_MODELS_ISA", None)
        if isa is not None:
            environment["OPEN_MODELS_ISA"] = isa
        self._process = subprocess.Popen(
            [driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=descriptor, env=environment
        )
        os.close(descriptor)

    def open(self, data: bytes, *, threads: int = 1, slots: int = 1, int8: bool = False) -> Opened:
        """Open one file; what is true of every answer is asserted here."""
        stdin, stdout = self._pipes()
        try:
            stdin.write(struct.pack("<Qiii", len(data), threads, slots, int8) + data)
            stdin.flush()
            line = stdout.readline().decode("utf-8", "replace")
        except BrokenPipeError:
            line = ""
        if not line:
            raise AssertionError(f"the opener ended with {self._process.wait()}:\n{self.last_words()}")
        status, taken, message = line.rstrip("\n").split(" ", 2)
        opened = Opened(int(status), int(taken), message)
        assert opened.taken_mib < MOST_ADDRESS_SPACE_MIB, opened
        assert opened.served or opened.status in (BAD_FILE, UNSUPPORTED), opened
        assert opened.served or len(opened.message) > 8, opened
        return opened

    def last_words(self) -> str:
        """What the process wrote to standard error: the sanitizer's report."""
        return self._log.read_text("utf-8", "replace")[-6000:]

    def close(self) -> None:
        """End the process; AssertionError when it did not end well, as with a leak."""
        stdin, _ = self._pipes()
        if self._process.poll() is None:
            stdin.close()
        status = self._process.wait(60)
        assert status == 0, self.last_words()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def __enter__(self) -> Opener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._process.poll() is None:
            self._process.kill()
            self._process.wait()
