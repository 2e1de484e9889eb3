"""A run that claims the pinned shell: the audit believes it only where its whole record agrees with that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from altered import Altered
from test_audit_files import audited, evidence

from toy_checkout import Toy

RECORD = "provenance/environment.json"
HASH = "0123456789abcdfghijklmnpqrsvwxyz"
OTHER_REV = "0123456789abcdef0123456789abcdef01234567"
Change = Callable[[Any], object]


def pinned(value: Any) -> None:
    """Make the record what a run in the pinned shell would have written."""
    said = value["shell"]
    said.update(kind="nix", name="default", pinned=True, why=[])
    said.update(claimed_rev=said["locked_rev"], claimed_nar_hash=said["locked_nar_hash"])
    value["kind"] = "nix"
    for name in ("uv", "git", "jq", "docker", "c++"):
        value["tools"][name] = stored(name)
    value["python"].update(stored("python3"))


def stored(name: str) -> dict[str, str]:
    place = f"/nix/store/{HASH}-{name}-1.0"
    program = f"{place}/bin/{name}"
    return {"found": program, "path": program, "version": "1.0", "sha256": "0" * 64, "store_path": place}


def test_a_run_in_the_pinned_shell_is_told_as_such(toy: Toy, altered: Altered) -> None:
    altered.json(RECORD, pinned)
    altered.reseal()
    code, answer = audited(toy, altered.run)
    assert code == 0, answer
    found = next(check for check in answer["checks"] if check["name"] == "shell")
    assert found["verdict"] == "PASS"
    assert "nix: nixpkgs d482ef84" in found["evidence"][0]


CHANGES: dict[str, tuple[Change, str]] = {
    "kind alone": (lambda value: value.update(kind="nix"), "kind is nix and host"),
    "pinned alone": (lambda value: value["shell"].update(pinned=True), "pinned is True"),
    "kind, without anything behind it": (
        lambda value: (value.update(kind="nix"), value["shell"].update(kind="nix", pinned=True)),
        "it says nix, but",
    ),
    "another revision": (
        lambda value: (pinned(value), value["shell"].update(claimed_rev=OTHER_REV)),
        f"its nixpkgs is revision {OTHER_REV}",
    ),
    "another content hash": (
        lambda value: (pinned(value), value["shell"].update(claimed_nar_hash="sha256-other")),
        "the content hash sha256-other",
    ),
    "the locked revision": (
        lambda value: (pinned(value), value["shell"].update(locked_rev=OTHER_REV)),
        "the frozen flake.lock differs",
    ),
    "the lock's digest": (
        lambda value: value["shell"].update(flake_lock_sha256="0" * 64),
        "frozen was another",
    ),
    "a program of the host's": (
        lambda value: (pinned(value), value["tools"]["jq"].update(path="/usr/bin/jq", store_path=None)),
        "jq is /usr/bin/jq, which is not in the Nix store",
    ),
    "a program that was not there": (
        lambda value: (pinned(value), value["tools"].update(jq=None)),
        "jq is not there",
    ),
    "no shell": (lambda value: value.pop("shell"), "the record cannot be read"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_record_that_does_not_agree_with_itself_fails(toy: Toy, altered: Altered, name: str) -> None:
    change, said = CHANGES[name]
    altered.json(RECORD, change)
    altered.reseal()
    code, answer = audited(toy, altered.run)
    assert code == 5
    assert said in evidence(answer, "shell")


def test_a_frozen_lock_of_another_nixpkgs_fails(toy: Toy, altered: Altered) -> None:
    path = altered.run / "provenance/pins/flake.lock"
    altered.json(RECORD, pinned)
    lock = json.loads(path.read_text())
    lock["nodes"]["nixpkgs"]["locked"]["rev"] = OTHER_REV
    path.write_text(json.dumps(lock))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    altered.json(RECORD, lambda value: value["shell"].update(flake_lock_sha256=digest))
    altered.reseal()
    _, answer = audited(toy, altered.run)
    assert f"but flake.lock names {OTHER_REV}" in evidence(answer, "shell")
