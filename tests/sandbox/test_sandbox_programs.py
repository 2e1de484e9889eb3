"""The programs inside the sandbox are the pinned ones, with the pinned packages, or nothing is built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.errors import PrerequisiteError, VerificationError
from assay.sandbox.images import load_programs
from assay.sandbox.programs import compare, constrained, export, exported, lock, pinned_versions

CHAT = load_programs("verifiers")[0]


@pytest.fixture(scope="session")
def source() -> str:
    return export([CHAT], "verifiers")["chat"]


def test_a_program_whose_digest_is_not_the_pinned_one_is_refused() -> None:
    other = CHAT.model_copy(update={"sha256": "0" * 64})

    with pytest.raises(VerificationError) as caught:
        export([other], "verifiers")

    assert caught.value.exit_code == 5
    assert "chat" in caught.value.what
    assert CHAT.sha256 in caught.value.why
    assert "0" * 64 in caught.value.why


def test_a_program_the_environment_does_not_have_is_named() -> None:
    with pytest.raises(PrerequisiteError) as caught:
        export([CHAT.model_copy(update={"object": "verifiers.v1:NO_SUCH_PROGRAM"})], "verifiers")

    assert "NO_SUCH_PROGRAM" in caught.value.why


def test_the_native_lock_holds_what_is_pinned_and_the_program_is_untouched(
    tmp_path: Path, runtime: Path, source: str
) -> None:
    path = lock(CHAT, source, tmp_path, runtime)

    assert path.read_text("utf-8") == source
    assert exported(path) == (runtime / "chat.pins").read_text("utf-8")


def test_a_changed_digest_in_the_pins_fails_naming_the_line(
    tmp_path: Path, runtime: Path, source: str
) -> None:
    pins = runtime / "chat.pins"
    text = pins.read_text("utf-8")
    genuine = re.findall(r"sha256:[0-9a-f]{64}", text)[3]
    pins.write_text(text.replace(genuine, f"sha256:{'f' * 64}"), "utf-8")

    with pytest.raises(VerificationError) as caught:
        lock(CHAT, source, tmp_path, runtime)

    assert "chat" in caught.value.what
    assert genuine in caught.value.why
    assert "f" * 64 in caught.value.why


def test_a_pinned_version_that_does_not_exist_fails_naming_the_package(
    tmp_path: Path, runtime: Path, source: str
) -> None:
    pins = runtime / "chat.pins"
    pins.write_text(re.sub(r"^certifi==\S+", "certifi==1900.1", pins.read_text("utf-8"), flags=re.M), "utf-8")

    with pytest.raises(PrerequisiteError) as caught:
        lock(CHAT, source, tmp_path, runtime)

    assert "certifi" in caught.value.why


def test_a_package_more_or_less_is_named(runtime: Path) -> None:
    found = (runtime / "chat.pins").read_text("utf-8")

    with pytest.raises(VerificationError) as caught:
        compare(CHAT, found + "leftpad==1.0 \\\n    --hash=sha256:00\n", runtime)
    assert "+leftpad==1.0" in caught.value.why

    with pytest.raises(VerificationError) as caught:
        compare(CHAT, re.sub(r"certifi==.*\n(    --hash.*\n)+", "", found), runtime)
    assert "-certifi==" in caught.value.why


def test_pins_that_are_missing_are_named(runtime: Path) -> None:
    (runtime / "chat.pins").unlink()

    with pytest.raises(VerificationError) as caught:
        pinned_versions(CHAT, runtime)

    assert "chat.pins" in caught.value.what


def test_pins_hold_no_address(runtime: Path) -> None:
    assert "://" not in (runtime / "chat.pins").read_text("utf-8")


def test_constraints_go_into_the_metadata_block_and_nowhere_else(source: str) -> None:
    changed = constrained(source, ["a==1 ; python_version < '3.11'"])

    added = [line for line in changed.splitlines() if line not in source.splitlines()]
    assert added == ["# [tool.uv]", "# constraint-dependencies = [\"a==1 ; python_version < '3.11'\"]"]
    assert changed.index("# [tool.uv]") < changed.index("import ")
