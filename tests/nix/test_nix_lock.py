"""The lint of the flake's lock: whatever is altered in it, in flake.nix or in the second record is met."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flake_lock
from assay.paths import ROOT
from assay.setup import tool

OTHER_REV = "0123456789abcdef0123456789abcdef01234567"
OTHER_HASH = "sha256-" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The three files that the lint reads, to be altered."""
    for name in ("flake.nix", "flake.lock", flake_lock.RECORD):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def alter(checkout: Path, change: Callable[[Any], object]) -> None:
    """Change the lock's value and write it as Nix would."""
    lock = json.loads((checkout / "flake.lock").read_text())
    change(lock)
    (checkout / "flake.lock").write_text(json.dumps(lock, indent=2) + "\n")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_repository_names_one_nixpkgs() -> None:
    assert list(flake_lock.problems()) == []


def test_an_unaltered_copy_is_clean(checkout: Path) -> None:
    alter(checkout, lambda lock: None)
    assert list(flake_lock.problems(checkout)) == []


def both(**values: object) -> Callable[[Any], object]:
    """Change locked and original alike, as a consistent forgery would."""

    def change(lock: Any) -> None:
        for side in ("locked", "original"):
            for key, value in values.items():
                if side == "locked" or key in flake_lock.ORIGINAL:
                    lock["nodes"]["nixpkgs"][side][key] = value

    return change


def locked(**values: object) -> Callable[[Any], object]:
    return lambda lock: lock["nodes"]["nixpkgs"]["locked"].update(values)


ALTERATIONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "the locked revision alone": (locked(rev=OTHER_REV), "rev is locked as"),
    "the revision everywhere in the lock": (both(rev=OTHER_REV), "rev is '0123"),
    "a short revision": (both(rev="d482ef8"), "not 40 hex digits"),
    "a branch": (both(rev="nixos-unstable"), "not 40 hex digits"),
    "a revision in capitals": (both(rev=OTHER_REV.upper()), "not 40 hex digits"),
    "another valid content hash": (locked(narHash=OTHER_HASH), f"narHash is {OTHER_HASH!r}, but"),
    "a hash of 31 bytes": (
        locked(narHash="sha256-" + base64.b64encode(bytes(31)).decode()),
        "not a canonical SHA-256",
    ),
    "another hash function": (locked(narHash=OTHER_HASH.replace("256", "512")), "not a canonical SHA-256"),
    "a hash without its padding": (locked(narHash=OTHER_HASH.rstrip("=")), "not a canonical SHA-256"),
    "a hash whose last bits are set": (
        locked(narHash="sha256-we5zDEFfn8TgzeWKjKDMIjeQZ59omEPl23NIF+13/yt="),
        "not a canonical SHA-256",
    ),
    "another date": (locked(lastModified=1786348147), "lastModified is 1786348147, but"),
    "a date that is no integer": (locked(lastModified=1786348146.0), "not an integer"),
    "another owner": (both(owner="nobody"), "owner is 'nobody', but"),
    "another repository": (both(repo="nixpkgs-fork"), "repo is 'nixpkgs-fork', but"),
    "another kind of source": (both(type="gitlab"), "not github"),
    "a key more": (locked(dir="lib"), "locked has"),
    "a key less": (lambda lock: lock["nodes"]["nixpkgs"]["locked"].pop("narHash"), "not a canonical SHA-256"),
    "another version": (lambda lock: lock.update(version=6), "version is 6, not 7"),
    "a version that is no integer": (lambda lock: lock.update(version=True), "version is True, not 7"),
    "a second input": (
        lambda lock: lock["nodes"]["root"]["inputs"].update(utils="utils"),
        "the one input nixpkgs",
    ),
    "a node that nothing asks for": (
        lambda lock: lock["nodes"].update(utils={}),
        "nodes.utils does not belong",
    ),
    "an input that is not a flake": (
        lambda lock: lock["nodes"]["nixpkgs"].update(flake=False),
        "nodes.nixpkgs.flake does not belong",
    ),
    "another root": (lambda lock: lock.update(root="nixpkgs"), "the one input nixpkgs"),
    "no nixpkgs": (lambda lock: lock["nodes"].pop("nixpkgs"), "cannot be read"),
    "a list": (lambda lock: lock["nodes"]["nixpkgs"].update(locked=[]), "cannot be read"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_altered_lock_is_met(checkout: Path, name: str) -> None:
    change, said = ALTERATIONS[name]
    alter(checkout, change)
    found = list(flake_lock.problems(checkout))
    assert any(said in problem for problem in found), found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("d482ef84049d9b7276b83a06e4e4d76983830097", OTHER_REV),
        ("github:NixOS/nixpkgs/d482ef84049d9b7276b83a06e4e4d76983830097", "github:NixOS/nixpkgs"),
        ("github:NixOS", "gitlab:NixOS"),
        ("  outputs =", '  inputs.utils.url = "github:NixOS/utils";\n  outputs ='),
    ],
)
def test_another_input_in_the_flake_is_met(checkout: Path, old: str, new: str) -> None:
    replace(checkout / "flake.nix", old, new)
    found = list(flake_lock.problems(checkout))
    assert any(problem.startswith("flake.nix: its inputs are") for problem in found), found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("d482ef84", "00000000", "rev is 'd482ef84"),
        ("we5zDEFf", "AAAAAAAA", "narHash is 'sha256-we5zDEFf"),
        ("1786348146", "1786348147", "lastModified is 1786348146"),
        ("1786348146", '"1786348146"', "lastModified is 1786348146"),
        ('owner = "NixOS"', 'owner = "nixos"', "owner is 'NixOS'"),
        ('owner = "NixOS"\n', "", "owner is 'NixOS', but tests/nix/nixpkgs.toml has None"),
        ('owner = "NixOS"', 'owner = "NixOS"\nbranch = "x"', "branch means nothing"),
    ],
)
def test_an_altered_record_is_met(checkout: Path, old: str, new: str, said: str) -> None:
    replace(checkout / flake_lock.RECORD, old, new)
    found = list(flake_lock.problems(checkout))
    assert any(said in problem for problem in found), found


def test_a_key_that_stands_twice_is_met(checkout: Path) -> None:
    line = '"rev": "d482ef84049d9b7276b83a06e4e4d76983830097",'
    replace(checkout / "flake.lock", line, f"{line} {line}")
    assert "a key stands twice" in "".join(flake_lock.problems(checkout))


@pytest.mark.parametrize("name", ["flake.nix", "flake.lock", "tests/nix/nixpkgs.toml"])
def test_a_missing_file_is_met(checkout: Path, name: str) -> None:
    (checkout / name).unlink()
    assert "cannot be read" in "".join(flake_lock.problems(checkout))


def test_the_installer_is_one_version_wherever_it_is_pinned() -> None:
    asked = (ROOT / "eval/assay/setup/tools.in").read_text()
    assert asked == f"uv=={tool.VERSION}\n"
    assert tool.LOCK.read_text().startswith(f"uv=={tool.VERSION} \\\n")
