"""The command itself: help, errors in three parts, documented exit codes, one JSON object, quiet pipes."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from assay import cli, errors
from assay.console import complain, printable, say, step
from assay.names import nearest
from assay.paths import ROOT, owned_directory, relative


def assay(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay.cli", *words], capture_output=True, text=True, timeout=120, check=False
    )


def test_help_lists_every_verb_with_what_it_does() -> None:
    done = assay("--help")
    assert done.returncode == 0
    for verb, summary in cli.VERBS.items():
        assert verb in done.stdout
        assert " ".join(summary.split()[:3]) in " ".join(done.stdout.split())
    assert assay("--version").stdout == "assay 0.1.0\n"


@pytest.mark.parametrize("verb", ["run", "status", "summarize", "audit", "reward"])
def test_every_verb_of_a_run_has_help_json_and_verbose(verb: str) -> None:
    done = assay(verb, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout
    assert "--verbose" in done.stdout


def test_without_a_verb_the_next_step_is_named() -> None:
    done = assay()
    assert done.returncode == 2
    assert "next: assay --help" in done.stderr


def failing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Put a verb `status` in place that does that."""
    module = types.ModuleType("assay.verbs.status")

    def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        parser = subparsers.add_parser("status", parents=[cli.shared()])
        parser.set_defaults(handler=lambda arguments: act())

    vars(module)["add"] = add
    monkeypatch.setitem(sys.modules, "assay.verbs.status", module)


def raising(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


CODES = [
    (errors.ConfigurationError, 2),
    (errors.PrerequisiteError, 3),
    (errors.PartialError, 4),
    (errors.VerificationError, 5),
    (errors.RunError, 5),
    (errors.CancelledError, 6),
]


@pytest.mark.parametrize(("kind", "code"), CODES)
def test_each_error_has_its_exit_code_and_is_printed_once_in_three_parts(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: type[errors.AssayError],
    code: int,
) -> None:
    failing(monkeypatch, raising(kind("what it is", "why it is", "type this")))
    assert cli.main(["status"]) == code
    captured = capsys.readouterr()
    assert captured.err == "assay: error: what it is\n  why:  why it is\n  next: type this\n"
    assert captured.out == ""
    assert cli.main(["status", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == {
        "status": "error",
        "error": {"what": "what it is", "why": "why it is", "next": "type this"},
        "exit_code": code,
    }
    assert cli.main(["status", "--verbose"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_what_the_system_refuses_is_told_with_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, raising(PermissionError(errno.EACCES, "Permission denied", "/some/file")))
    assert cli.main(["status", "--json"]) == 5
    captured = capsys.readouterr()
    assert "/some/file cannot be used" in captured.err
    assert "Permission denied" in captured.err
    assert json.loads(captured.out)["exit_code"] == 5
    failing(monkeypatch, raising(OSError(errno.ENOSPC, "No space left on device", "/some/file")))
    assert cli.main(["status"]) == 5
    assert "the disk is full: /some/file" in capsys.readouterr().err


def test_ctrl_c_outside_a_run_is_a_cancellation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, raising(KeyboardInterrupt()))
    assert cli.main(["status", "--json"]) == 6
    captured = capsys.readouterr()
    assert captured.err == "assay: error: cancelled\n"
    assert json.loads(captured.out)["exit_code"] == 6


def test_an_error_without_reason_or_next_step_has_no_empty_lines() -> None:
    stream = io.StringIO()
    sys.stderr, before = stream, sys.stderr
    try:
        complain(errors.RunError("it failed"))
    finally:
        sys.stderr = before
    assert stream.getvalue() == "assay: error: it failed\n"
    assert str(errors.RunError("a", "b", "c")) == "a; b; c"
    assert str(errors.RunError("a", next="c")) == "a; c"


def test_a_reader_who_went_away_is_no_error() -> None:
    source = "import sys; from assay.cli import main; sys.exit(main(['--help']))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", source], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 0


def test_diagnostics_that_nobody_reads_end_no_work() -> None:
    source = "import os, sys; from assay.console import say; say('a'); say('b'); print('worked'); sys.exit(7)"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=write, check=False)
    os.close(write)
    assert (done.stdout, done.returncode) == (b"worked\n", 7)


def test_what_is_said_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[2J\x07\x9b\nb é 漢")
    assert capsys.readouterr().err == "a\\x1b[2J\\x07\\x9b\nb é 漢\n"
    assert printable("\ud800\t") == "\\ud800\\t"


def test_a_step_says_what_and_how_long_and_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with step("counting"):
        pass
    first, second = capsys.readouterr().err.splitlines()
    assert first == "assay: counting ..."
    assert second.startswith("assay: counting: ")
    assert second.endswith(" s")


def test_the_nearest_name_is_told_with_all_that_are_known() -> None:
    assert nearest("dmeo", ["demo-full", "demo"]) == 'did you mean "demo"? known: demo, demo-full'
    assert nearest("zzz", ["demo"]) == "known: demo"
    assert nearest("zzz", []) == "none is known"


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's root for the rules about its folders."""
    monkeypatch.setattr("assay.paths.ROOT", tmp_path)
    return tmp_path


def test_an_owned_folder_is_made_inside_the_checkout_alone(
    inside: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = owned_directory(inside / ".assay/private", mode=0o700)
    assert made.is_dir()
    assert made.stat().st_mode & 0o777 == 0o700
    assert owned_directory(made) == made
    for outside in (tmp_path_factory.mktemp("other"), Path("/"), Path("relative")):
        with pytest.raises(errors.ConfigurationError, match="is not inside the checkout"):
            owned_directory(outside)


@pytest.mark.parametrize("place", [".assay", ".assay/cache", ".assay/cache/uv"])
def test_a_link_at_any_depth_of_an_owned_folder_is_refused(
    inside: Path, tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    link = inside / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(errors.ConfigurationError, match=f"{place} is a symbolic link") as caught:
        owned_directory(inside / ".assay/cache/uv/x")
    assert caught.value.next == f"remove the link: rm {place}"
    assert list(elsewhere.iterdir()) == []


def test_a_folder_reached_by_going_up_is_not_inside(inside: Path) -> None:
    with pytest.raises(errors.ConfigurationError):
        owned_directory(inside / ".assay/../../outside")
    assert not (inside.parent / "outside").exists()


def test_a_path_is_shown_from_the_checkouts_root() -> None:
    assert relative(ROOT / "eval/configs") == "eval/configs"
    assert relative(Path("/elsewhere/x")) == "/elsewhere/x"


def test_a_script_is_found_beside_its_sisters_also_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "run"
    link.symlink_to(ROOT / "eval/scripts/run")
    done = subprocess.run(
        [link, "no-such-profile"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert 'there is no profile "no-such-profile"' in done.stderr
