"""Compiles the engine's shared library on first use, once for each source and compiler.

Contract: :func:`ensure_built` returns a library whose directory is named after
the digest of everything that decides its bytes (sources, flags, compiler), so
that an edited source or another compiler is another library and never a stale
one. A build happens in a temporary directory and appears by one rename; a
second builder waits for the first. The flags are fixed: no ``-march=native``
and no fast-math, since the served bytes must depend on the named instruction
set alone. Only the files of ``cpu/`` are compiled for AVX2, and those of
``cpu/avx512/`` for AVX-512; which path runs is decided at run time.

The same sources can be compiled with a sanitizer, as a library of its own: a
:class:`Variant` by argument, or by the name that the environment variable
``ASSAY_ENGINE_SANITIZER`` holds. Such a library is for tests; it is several
times slower, and its identity (flags, digest, fingerprint) is another one.
"""

import fcntl
import hashlib
import json
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

_LOG = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "engine"
OUTPUT = Path(__file__).parents[1] / ".assay" / "engine"
LIBRARY = "libassay_engine.so"
LOG = "compile.log"  # what the compiler said, beside the library

_FLAGS = (
    "-O3",
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-fast-math",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
)
# Rooms whose files may use more than every x86-64 CPU has, in the order they are linked.
_SIMD_ROOMS = {
    "cpu": ("-mavx2", "-mfma", "-mf16c"),
    "cpu/avx512": (
        *("-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw"),
        *("-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512"),
        # GCC 12 warns of its own header, where a register is left undefined on purpose.
        *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),
    ),
}
_LINK_FLAGS = ("-shared", "-pthread", "-Wl,--build-id=none")
_COMPILERS = ("c++", "g++", "clang++")


class EngineError(RuntimeError):
    """The engine cannot be built, cannot load a model, or refused a request; says what and why."""


class EngineMemoryError(EngineError):
    """There is not as much memory as it takes; says how much, where that is known."""


class EngineArgumentError(EngineError):
    """What was asked for is outside what the engine or the model takes."""


@dataclass(frozen=True)
class Variant:
    """A way to compile the sources: the served library, or one that a sanitizer watches."""

    flags: tuple[str, ...] = ()  # behind the fixed ones
    link_flags: tuple[str, ...] = ()
    simd: bool = True  # with the rooms that need an instruction set of their own


RELEASE = Variant()
# The program that loads it must bring the sanitizer's run-time library: by linking, or by LD_PRELOAD.
SANITIZED = {
    name: Variant(("-O1", "-g", "-fno-omit-frame-pointer", *flags), flags)
    for name, flags in {
        "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        "thread": ("-fsanitize=thread",),
    }.items()
}


@dataclass(frozen=True)
class EngineBuild:
    """What a compiled library is, for the server's identity."""

    library: Path  # where it lies
    library_sha256: str
    source_sha256: str  # over the names and bytes of every source file
    compiler: str  # first line of its --version
    flags: str  # of every file, then of the rooms for one instruction set


class Recipe(Protocol):
    """How a library is made, and everything that decides its bytes."""

    @property
    def source_sha256(self) -> str:
        """The digest over the names and bytes of every source file."""

    @property
    def version(self) -> str:
        """What the compiler is."""

    @property
    def flags(self) -> str:
        """Every flag given to it."""

    @property
    def sources(self) -> tuple[Path, ...]:
        """What is compiled, below SOURCES."""

    def command(self, source: Path) -> list[str]:
        """Returns the command that compiles a source, without its -c and -o."""

    def link_command(self) -> list[str]:
        """Returns the command that links, without its -o and objects."""


@dataclass(frozen=True)
class _Plan:
    """One build: its sources in order, its compiler, and the digest that names it."""

    compiler: str
    version: str
    sources: tuple[Path, ...]
    source_sha256: str
    simd: bool  # with the rooms of _SIMD_ROOMS
    variant: Variant = RELEASE

    @property
    def flags(self) -> str:
        text = " ".join((*_FLAGS, *self.variant.flags, *self.link_flags))
        rooms = _SIMD_ROOMS if self.simd else {}
        return "; ".join([text, *(f"{room}/: {' '.join(flags)}" for room, flags in rooms.items())])

    @property
    def link_flags(self) -> tuple[str, ...]:
        return (*_LINK_FLAGS, *self.variant.link_flags)

    def arguments(self, source: Path) -> list[str]:
        """Returns the flags of one source file."""
        flags = [*_FLAGS, *self.variant.flags]
        if self.simd:
            flags.append("-DASSAY_HAS_X86")
            flags.extend(_SIMD_ROOMS.get(source.parent.as_posix(), ()))
        return flags

    def command(self, source: Path) -> list[str]:
        return [self.compiler, *self.arguments(source)]

    def link_command(self) -> list[str]:
        return [self.compiler, *self.link_flags]


def ensure_built(output: Path = OUTPUT, variant: Variant | None = None) -> EngineBuild:
    """Returns the library of the present sources, compiling it when there is none.

    Args:
        output: where libraries are kept.
        variant: how to compile them; by default as the environment says, without a word the served way.

    Raises:
        EngineError: no C++ compiler was found, or it failed (its own words are in the message), or
            the environment names a sanitizer that there is none of.
    """
    return make_once(_plan(_asked_variant() if variant is None else variant), output)


def make_once(recipe: Recipe, output: Path = OUTPUT) -> EngineBuild:
    """Returns the library of a recipe, compiling it when there is none.

    Raises:
        EngineError: the compiler failed; its own words are in the message.
    """
    key = json.dumps([recipe.source_sha256, recipe.flags, recipe.version, platform.machine()])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    output.mkdir(parents=True, exist_ok=True)
    with _locked(output / f"{name}.lock"):
        found = _existing(output / name, recipe)
        return found if found is not None else _build(output / name, recipe)


def source_digest(files: Sequence[Path]) -> str:
    """Returns the SHA-256 over the names and bytes of source files."""
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def compiler_words(compiler: str) -> list[str]:
    """Returns the lines in which a compiler says what it is."""
    return _run([compiler, "--version"]).strip().splitlines()


def find_compiler() -> str:
    """Returns the path of the C++ compiler: $CXX, or the first of c++, g++ and clang++.

    Raises:
        EngineError: there is none; names what to install.
    """
    asked = os.environ.get("CXX")
    for name in (asked,) if asked else _COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    tried = f"CXX={asked}" if asked else ", ".join(_COMPILERS)
    raise EngineError(
        f"no C++ compiler found (tried {tried}): the engine is compiled on first use. "
        "Install one, on Debian or Ubuntu: apt-get install g++"
    )


def _asked_variant() -> Variant:
    name = os.environ.get("ASSAY_ENGINE_SANITIZER", "")
    if name and name not in SANITIZED:
        raise EngineError(
            f"there is no engine with the sanitizer {name!r}: set ASSAY_ENGINE_SANITIZER to one of "
            f"{', '.join(SANITIZED)}, or unset it"
        )
    return SANITIZED[name] if name else RELEASE


def _plan(variant: Variant = RELEASE) -> _Plan:
    compiler = find_compiler()
    simd = variant.simd and platform.machine() in ("x86_64", "AMD64")
    files = sorted(path for path in SOURCES.rglob("*") if path.suffix in (".cpp", ".h"))
    units = [path.relative_to(SOURCES) for path in files if path.suffix == ".cpp"]
    # Linked last, a room for more cannot lend a function that two rooms define to one for less.
    rooms = [[path for path in units if path.parent.as_posix() == room] for room in _SIMD_ROOMS]
    portable = [path for path in units if path.parent.as_posix() not in _SIMD_ROOMS]
    sources = (*portable, *(path for room in rooms for path in room if simd))
    return _Plan(compiler, compiler_words(compiler)[0].strip(), sources, source_digest(files), simd, variant)


def _existing(folder: Path, plan: Recipe) -> EngineBuild | None:
    """Returns the finished build in a folder, or None when there is none or its bytes changed."""
    library = folder / LIBRARY
    try:
        recorded = json.loads((folder / "build.json").read_text())["library_sha256"]
        present = hashlib.sha256(library.read_bytes()).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if recorded != present:
        _LOG.warning("%s differs from its record and is built again", library)
        return None
    return EngineBuild(library, present, plan.source_sha256, plan.version, plan.flags)


def _build(folder: Path, plan: Recipe) -> EngineBuild:
    _LOG.info("compiling the engine with %s", plan.version)
    begun = f"building-{folder.name}-"
    for left in folder.parent.glob(f"{begun}*"):  # by a process that was ended: the lock says nobody builds
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=begun) as temporary:
        work = Path(temporary)
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            objects = list(pool.map(lambda source: _compile(plan, source, work), plan.sources))
        result = work / "result"
        result.mkdir()
        (result / LOG).write_text("".join(path.with_suffix(".log").read_text() for path in objects))
        library = result / LIBRARY
        _run([*plan.link_command(), "-o", str(library), *map(str, objects)])
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        build = EngineBuild(folder / LIBRARY, digest, plan.source_sha256, plan.version, plan.flags)
        record = {**asdict(build), "library": LIBRARY}
        (result / "build.json").write_text(json.dumps(record, indent=2) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        result.rename(folder)
    return build


def _compile(plan: Recipe, source: Path, work: Path) -> Path:
    target = work / f"{'-'.join(source.parts)}.o"
    target.with_suffix(".log").write_text(_run([*plan.command(source), "-c", str(source), "-o", str(target)]))
    return target


def _run(command: list[str]) -> str:
    """Runs a compiler command in the source folder and returns what it said."""
    result = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise EngineError(
            f"the C++ compiler failed with exit code {result.returncode}: {' '.join(command)}\n"
            f"{result.stderr.strip()[-4000:]}"
        )
    return result.stdout + result.stderr


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
