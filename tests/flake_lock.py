"""Whether flake.nix, flake.lock and the second record (`tests/nix/nixpkgs.toml`) name one nixpkgs.

Nix itself notices, without a network, only that flake.nix and flake.lock disagree about what was asked for.
Another revision or content hash in the lock would be met by whoever downloads it first; here it is met now.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.paths import ROOT

RECORD = Path("tests/nix/nixpkgs.toml")
REVISION = re.compile(r"[0-9a-f]{40}")
INPUT_URL = re.compile(r'^\s*inputs\.(\S+)\.url\s*=\s*"([^"]*)";', re.MULTILINE)
LOCKED = {"lastModified", "narHash", "owner", "repo", "rev", "type"}
ORIGINAL = {"owner", "repo", "rev", "type"}
RECORDED = {
    "owner": "owner",
    "repo": "repo",
    "rev": "rev",
    "nar_hash": "narHash",
    "last_modified": "lastModified",
}


def problems(root: Path = ROOT) -> Iterator[str]:
    """Everything that is not as it must be, each in a sentence.

    Args:
        root: A checkout.
    """
    try:
        lock = json.loads((root / "flake.lock").read_bytes(), object_pairs_hook=once)
        record = tomllib.loads((root / RECORD).read_text("utf-8"))
        flake = (root / "flake.nix").read_text("utf-8")
        node = lock["nodes"]["nixpkgs"]
        found = [*shape_problems(lock), *node_problems(node["locked"], node["original"])]
        found += record_problems(node["locked"], record)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"flake.lock, flake.nix or {RECORD} cannot be read: {error!r}"
        return
    yield from found
    url = f"github:{record.get('owner')}/{record.get('repo')}/{record.get('rev')}"
    if INPUT_URL.findall(flake) != [("nixpkgs", url)]:
        yield f"flake.nix: its inputs are {INPUT_URL.findall(flake)}, but {RECORD} has only nixpkgs at {url}"


def record_problems(locked: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    """Where the lock and the second record differ."""
    for name, key in RECORDED.items():
        wanted, got = record.get(name), locked.get(key)
        if type(wanted) is not type(got) or wanted != got:
            yield f"flake.lock: {key} is {got!r}, but {RECORD} has {wanted!r}"
    for name in record.keys() - RECORDED.keys():
        yield f"{RECORD}: {name} means nothing"


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError where a key stands in it twice, since readers differ in which they take."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key stands twice among {[name for name, _ in pairs]}")
    return found


def shape_problems(lock: Mapping[str, Any]) -> Iterator[str]:
    """Where the lock is another form than version 7 with one input."""
    if type(lock["version"]) is not int or lock["version"] != 7:
        yield f"flake.lock: version is {lock['version']!r}, not 7"
    if lock["root"] != "root" or lock["nodes"]["root"] != {"inputs": {"nixpkgs": "nixpkgs"}}:
        yield "flake.lock: its root must have the one input nixpkgs"
    others = [f"nodes.{name}" for name in lock["nodes"].keys() - {"root", "nixpkgs"}]
    others += [f"nodes.nixpkgs.{name}" for name in lock["nodes"]["nixpkgs"].keys() - {"locked", "original"}]
    others += list(lock.keys() - {"nodes", "root", "version"})
    for name in sorted(others):
        yield f"flake.lock: {name} does not belong there"


def node_problems(locked: Mapping[str, Any], original: Mapping[str, Any]) -> Iterator[str]:
    """Where the locked input is not a whole pin, or is not what was asked for."""
    if locked.keys() != LOCKED or original.keys() != ORIGINAL:
        yield f"flake.lock: locked has {sorted(locked)} and original {sorted(original)}"
    if locked.get("type") != "github":
        yield f"flake.lock: type is {locked.get('type')!r}, not github"
    if not REVISION.fullmatch(str(locked.get("rev"))):
        yield f"flake.lock: rev is {locked.get('rev')!r}, not 40 hex digits"
    if not is_canonical_hash(str(locked.get("narHash"))):
        yield f"flake.lock: narHash is {locked.get('narHash')!r}, not a canonical SHA-256 of 32 bytes"
    if type(locked.get("lastModified")) is not int:
        yield f"flake.lock: lastModified is {locked.get('lastModified')!r}, not an integer"
    for key in sorted(ORIGINAL):
        asked, got = original.get(key), locked.get(key)
        if asked != got:
            yield f"flake.lock: {key} is locked as {got!r}, but asked for as {asked!r}"


def is_canonical_hash(text: str) -> bool:
    """Whether the text is `sha256-` and the one base64 form of 32 bytes."""
    kind, _, encoded = text.partition("-")
    try:
        decoded = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return False
    return kind == "sha256" and len(decoded) == 32 and base64.b64encode(decoded).decode("ascii") == encoded
