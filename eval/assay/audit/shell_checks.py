"""In which shell was the run made? The operator's word, held against the lock that the run froze."""

from __future__ import annotations

from typing import Any

from assay.audit.case import Recorded
from assay.audit.check import Check
from assay.shell import VARIABLES, read_lock
from assay.shell import judge as judge_shell
from assay.tools import Program

NAME = "shell"
RECORD = "provenance/environment.json"


def shell(case: Recorded) -> Check:
    """A run that says it was made in the pinned shell names the frozen lock's nixpkgs and its programs."""
    value = case.json(case.provenance / "environment.json")
    said = value["shell"]
    lock = read_lock(case.provenance / "pins" / "flake.lock")
    faults = []
    if said["flake_lock_sha256"] != (lock.sha256 if lock else None):
        faults.append(f"{RECORD}: flake.lock is {said['flake_lock_sha256']}, frozen was another")
    if (said["locked_rev"], said["locked_nar_hash"]) != ((lock.rev, lock.nar_hash) if lock else (None, None)):
        faults.append(f"{RECORD}: nixpkgs is locked as {said['locked_rev']}, the frozen flake.lock differs")
    if value["kind"] != said["kind"] or said["pinned"] is not (said["kind"] == "nix"):
        faults.append(f"{RECORD}: kind is {value['kind']} and {said['kind']}, pinned is {said['pinned']}")
    if said["kind"] == "nix":
        claimed = (said["name"], said["claimed_rev"], said["claimed_nar_hash"], said["flake_lock_sha256"])
        variables = {name: item or "" for name, item in zip(VARIABLES, claimed, strict=True)}
        recorded = {"python": value["python"], **value["tools"]}
        found = judge_shell({name: read(name, item) for name, item in recorded.items()}, variables, lock)
        reasons = () if found.pinned else found.why or ("it names no shell",)
        faults += [f"{RECORD}: it says nix, but {reason}" for reason in reasons]
    if faults:
        return Check(NAME, "FAIL", tuple(faults))
    pinned = f"nixpkgs {said['locked_rev']}, as flake.lock names it" if said["pinned"] else "not pinned"
    return Check(NAME, "PASS", (f"{said['kind']}: {pinned} (the operator's word)",))


def read(name: str, value: dict[str, Any] | None) -> Program | None:
    """A program as a record has it."""
    keys = ("found", "path", "version", "sha256", "store_path")
    return None if value is None else Program(name, *(value[key] for key in keys))
