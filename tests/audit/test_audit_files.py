"""The audit against the manifest: any changed, missing or added byte is found and named by its path."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from altered import Altered

from assay.audit.report import CHECKS
from assay.digest import value_digest
from toy_checkout import Toy


def audited(toy: Toy, run: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The audit's exit code and its JSON object."""
    done = toy.run("audit", run, "--json", *words)
    assert "Traceback" not in done.err
    return done.code, done.json


def evidence(answer: dict[str, Any], name: str) -> str:
    """What one failed check found."""
    check = next(check for check in answer["checks"] if check["name"] == name)
    assert check["verdict"] == "FAIL", check
    return "\n".join(check["evidence"])


def test_an_honest_run_verifies_and_strictly_it_does_not(toy: Toy, honest: Path) -> None:
    code, answer = audited(toy, honest)
    assert (code, answer["status"], answer["failed"]) == (0, "verified", [])
    verdicts = {check["name"]: check["verdict"] for check in answer["checks"]}
    unknown = {name for name, verdict in verdicts.items() if verdict == "UNKNOWN"}
    assert unknown == {"signature", "statement", "isolation"}
    assert list(verdicts) == [rule.name for rule in CHECKS]
    bases = {check["basis"] for check in answer["checks"]}
    assert bases == {"recomputed", "pinned", "measured", "claimed"}
    code, answer = audited(toy, honest, "--strict")
    assert (code, answer["status"], set(answer["failed"])) == (5, "failed", unknown)


def test_an_audit_changes_nothing_in_the_run(toy: Toy, honest: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in honest.rglob("*")}
    audited(toy, honest)
    assert {path: path.lstat().st_mtime_ns for path in honest.rglob("*")} == before


def test_the_printed_audit_says_each_check_with_its_verdict_and_whole_evidence(
    toy: Toy, honest: Path
) -> None:
    done = toy.run("audit", honest)
    assert done.code == 0
    printed = re.sub(r"\s", "", done.out)
    for text in (
        "signature UNKNOWN recomputed",
        "nobody vouches",
        "files PASS recomputed",
        "egress: not enforced",
    ):
        assert text.replace(" ", "") in printed
    digest = value_digest(json.loads((honest / "resolved.json").read_text()))
    assert digest in printed, "folded, and not cut"
    assert "\x1b" not in done.out


def files_of(run: Path) -> list[str]:
    return [path.relative_to(run).as_posix() for path in sorted(run.rglob("*")) if path.is_file()]


def flip(run: Altered) -> str:
    path = run.run / "count/traces.jsonl"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return "count/traces.jsonl"


def changed_score(run: Altered) -> str:
    run.json("summary.json", lambda value: value["families"][0].update(score=1.0))
    return "summary.json"


def removed(run: Altered) -> str:
    (run.run / "provenance/worktree.json").unlink()
    return "provenance/worktree.json"


def added(run: Altered) -> str:
    (run.run / "count/extra.txt").write_text("")
    return "count/extra.txt"


def renamed(run: Altered) -> str:
    (run.run / "server.log").rename(run.run / "server2.log")
    return "server.log"


def relinked(run: Altered) -> str:
    link = run.run / "count/logs/latest"
    link.unlink()
    link.symlink_to("attempt_2")
    return "count/logs/latest"


def replaced_by_link(run: Altered) -> str:
    (run.run / "summary.md").rename(run.run / "summary2.md")
    (run.run / "summary.md").symlink_to("summary2.md")
    return "summary.md"


def edited_pin(run: Altered) -> str:
    run.text("provenance/pins/models.lock", "sha256", "sha257")
    return "provenance/pins/models.lock"


def edited_plan(run: Altered) -> str:
    run.json("resolved.json", lambda value: value.update(description="better"))
    return "resolved.json"


def edited_overrides(run: Altered) -> str:
    run.json("provenance/launch/count/overrides.json", lambda value: value.update(push=True))
    return "provenance/launch/count/overrides.json"


def removed_row(run: Altered) -> str:
    run.lines("samples.jsonl", lambda rows: rows.pop())
    return "samples.jsonl"


def edited_log(run: Altered) -> str:
    with (run.run / "run.log").open("a") as log:
        log.write("x")
    return "run.log"


@pytest.mark.parametrize(
    "change",
    [flip, changed_score, removed, added, renamed, relinked, replaced_by_link, edited_pin, edited_plan,
     edited_overrides, removed_row, edited_log],
)  # fmt: skip
def test_a_change_that_the_manifest_does_not_know_is_named(
    toy: Toy, altered: Altered, change: Callable[[Altered], str]
) -> None:
    path = change(altered)
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert "files" in answer["failed"]
    assert path in evidence(answer, "files")


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_truncated_manifest_is_no_manifest(toy: Toy, altered: Altered, cut: int) -> None:
    path = altered.run / "manifest.json"
    path.write_bytes(path.read_bytes()[:cut].removesuffix(b"}").rstrip(b"}\n"))
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert "manifest.json is not a manifest" in evidence(answer, "files")


HOSTILE = {
    "deep list": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "null": b"null",
    "list": b"[]",
    "another schema": b'{"schema_version": 7, "files": {}}',
    "no schema": b'{"files": 1}',
    "files that are no table": b'{"schema_version": "assay/manifest/v1", "files": [1]}',
    "not UTF-8": b"\xff\xfe\x00",
    "a long number": b"1" * 10_000,
    "a long text": b'"' + b"x" * 5_000_000,
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("manifest.json", content) for content in HOSTILE),
        *(("summary.json", content) for content in ("deep list", "list", "not UTF-8")),
        *(("resolved.json", content) for content in ("deep object", "null", "a long number")),
        *(("state.json", content) for content in ("deep object", "list", "a long text")),
        *(("provenance/tasks/count.json", content) for content in ("deep object", "null")),
        *(("count/traces.jsonl", content) for content in ("deep list", "not UTF-8")),
    ],
)
def test_hostile_json_is_a_verdict_and_not_a_traceback(
    toy: Toy, altered: Altered, name: str, content: str
) -> None:
    (altered.run / name).write_bytes(HOSTILE[content] + b"\n")
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert "files" in answer["failed"]
    assert name in evidence(answer, "files")


def linked_out(run: Path) -> str:
    (run / "count/outside").symlink_to("/etc/hostname")
    return "count/outside is a link to /etc/hostname"


def linked_up(run: Path) -> str:
    (run / "count/up").symlink_to("..")
    return "count/up is a link to .."


def linked_folder(run: Path) -> str:
    (run / "provenance").rename(run.parent / "provenance")
    (run / "provenance").symlink_to(run.parent / "provenance")
    return "provenance is a link to"


def pipe(run: Path) -> str:
    (run / "summary.json").unlink()
    os.mkfifo(run / "summary.json")
    return "summary.json is neither a file nor a directory"


def not_text(run: Path) -> str:
    (run / os.fsdecode(b"\xff\x1b[2J")).touch()
    return "is not a UTF-8 name"


@pytest.mark.parametrize("change", [linked_out, linked_up, linked_folder, pipe, not_text])
def test_what_no_record_may_hold_is_named_and_nothing_is_opened(
    toy: Toy, altered: Altered, change: Callable[[Path], str]
) -> None:
    said = change(altered.run)
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert said in evidence(answer, "files")
    assert [check["name"] for check in answer["checks"]] == ["files"]
    printed = toy.run("audit", altered.run)
    assert printed.code == 5
    assert "\x1b" not in printed.out


def test_words_of_a_stranger_move_no_cursor(toy: Toy, altered: Altered) -> None:
    altered.json(
        "provenance/worktree.json", lambda value: value.update(clean=False, commit="\x1b]0;x\x07\x9b2J")
    )
    altered.reseal()
    printed = toy.run("audit", altered.run)
    assert printed.code == 0
    assert "\\x1b]0;x" in printed.out
    assert not set("\x1b\x07\x9b") & set(printed.out)


def test_a_lone_surrogate_in_a_record_is_still_printed(toy: Toy, altered: Altered) -> None:
    altered.json("provenance/worktree.json", lambda value: value.update(clean=False, commit="A"))
    altered.text("provenance/worktree.json", '"A"', '"\\ud800"')
    altered.reseal()
    code, answer = audited(toy, altered.run)
    assert (code, answer["failed"]) == (5, ["form"]), "a run writes no half of a pair"
    assert any("\ud800" in text for check in answer["checks"] for text in check["evidence"])


def test_a_run_that_was_moved_still_verifies(toy: Toy, altered: Altered, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / altered.run.name
    shutil.move(altered.run, moved)
    assert audited(toy, moved)[0] == 0


def test_a_link_to_a_run_is_not_a_run(toy: Toy, honest: Path, tmp_path: Path) -> None:
    link = tmp_path / honest.name
    link.symlink_to(honest)
    done = toy.run("audit", link, "--json")
    assert done.code == 5
    assert "is not a run directory" in done.err
