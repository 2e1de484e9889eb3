"""Building the library: once for each source and compiler, and never a stale or half-made one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server import build
from server.build import EngineError, ensure_built, find_compiler

ONE_FILE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny engine of one file in place of the real one."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "answer.cpp").write_text(ONE_FILE)
    monkeypatch.setattr(build, "SOURCES", folder)
    return folder


def test_the_same_sources_are_compiled_once(sources: Path, tmp_path: Path) -> None:
    first = ensure_built(tmp_path / "out")
    made = first.library.stat().st_mtime_ns
    assert ensure_built(tmp_path / "out") == first
    assert first.library.stat().st_mtime_ns == made


def test_another_source_is_another_library(sources: Path, tmp_path: Path) -> None:
    first = ensure_built(tmp_path / "out")
    (sources / "answer.cpp").write_text(ONE_FILE.replace("42", "43"))
    second = ensure_built(tmp_path / "out")
    assert second.source_sha256 != first.source_sha256
    assert second.library_sha256 != first.library_sha256
    assert first.library.is_file()


def test_two_builders_at_once_make_one_library(sources: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        builds = list(pool.map(lambda _: ensure_built(tmp_path / "out"), range(4)))
    assert len(set(builds)) == 1
    assert not list((tmp_path / "out").glob("building-*"))


def test_what_a_builder_left_that_was_ended_goes_with_the_next_build(sources: Path, tmp_path: Path) -> None:
    built = ensure_built(tmp_path / "out").library.parent
    left = built.with_name(f"building-{built.name}-x")
    other = built.with_name("building-another-x")
    for folder in (left, other):
        folder.mkdir()
    ensure_built(tmp_path / "out")
    assert left.exists(), "nothing is built"
    shutil.rmtree(built)
    ensure_built(tmp_path / "out")
    assert (left.exists(), other.exists()) == (False, True)


def test_a_changed_library_is_built_again(sources: Path, tmp_path: Path) -> None:
    first = ensure_built(tmp_path / "out")
    first.library.write_bytes(first.library.read_bytes()[:-1] + b"?")
    assert ensure_built(tmp_path / "out") == first


def test_a_build_is_reproducible(sources: Path, tmp_path: Path) -> None:
    assert ensure_built(tmp_path / "a").library_sha256 == ensure_built(tmp_path / "b").library_sha256


def test_a_source_that_does_not_compile_leaves_nothing_behind(sources: Path, tmp_path: Path) -> None:
    (sources / "answer.cpp").write_text("this is no C++")
    with pytest.raises(EngineError, match=r"(?s)compiler failed.*answer\.cpp"):
        ensure_built(tmp_path / "out")
    assert [path.suffix for path in (tmp_path / "out").iterdir()] == [".lock"]


def test_no_compiler_is_an_error_that_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(EngineError, match=r"tried c\+\+, g\+\+, clang\+\+.*apt-get install g\+\+"):
        find_compiler()
    monkeypatch.setenv("CXX", "nowhere-cxx")
    with pytest.raises(EngineError, match="CXX=nowhere-cxx"):
        find_compiler()


def test_the_flags_are_fixed_and_name_no_native_machine() -> None:
    flags = ensure_built().flags
    assert {"-O3", "-std=c++17", "-ffp-contract=off", "-fno-fast-math"} <= set(flags.split())
    assert "native" not in flags


def test_only_the_rooms_of_an_instruction_set_are_compiled_for_it() -> None:
    plan = build._plan()
    for source in plan.sources:
        room = source.parent.as_posix()
        assert ("-mavx2" in plan.arguments(source)) == (room in ("cpu", "cpu/avx512"))
        assert ("-mavx512f" in plan.arguments(source)) == (room == "cpu/avx512")


@pytest.mark.slow
def test_an_instruction_sets_room_lends_no_function_to_another(tmp_path: Path) -> None:
    """A function that two rooms define is linked once, so these rooms must define none of those."""
    plan = build._plan()
    room = [path for path in plan.sources if "cpu" in path.parts]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda source: build._compile(plan, source, tmp_path), room))
    for target in objects:
        names = subprocess.run([_nm(), "-C", str(target)], capture_output=True, text=True, check=True).stdout
        assert not [line for line in names.splitlines() if line[17:18] in ("W", "V", "u")], target
    assert plan.simd == bool(objects)


def _nm() -> str:
    found = shutil.which("nm")
    assert found is not None, "the C++ compiler's binutils bring nm"
    return found


def test_a_subnormal_flushing_caller_gets_the_same_bytes(tiny_path: Path) -> None:
    """A library compiled for fast math turns subnormals off in the thread that loads it."""
    script = (
        "import ctypes, sys\n"
        "if sys.argv[2] == 'flush':\n"
        "    ctypes.CDLL(sys.argv[3]).flush()\n"
        "from pathlib import Path\n"
        "from server.engine import Chunk, Engine\n"
        "with Engine(Path(sys.argv[1]), threads=2) as engine:\n"
        "    print(engine.step([Chunk(0, 0, [1, 2, 3], 'all')]).logits.tobytes().hex())\n"
    )
    source, library = tiny_path.parent / "flush.cpp", tiny_path.parent / "flush.so"
    source.write_text('extern "C" void flush() { __builtin_ia32_ldmxcsr(0x1f80 | 0x8040); }\n')
    if build._plan().simd:
        subprocess.run([find_compiler(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    answers = {
        subprocess.run(
            [sys.executable, "-c", script, str(tiny_path), mode, str(library)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ},
        ).stdout
        for mode in (("keep", "flush") if build._plan().simd else ("keep",))
    }
    assert len(answers) == 1
