"""What a reader should know of a run beside its scores, out of its provenance: who vouches, what was pinned.

A view judges nothing: a signature that is there is told as unverified, and `assay audit` verifies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.errors import VerificationError
from assay.files import read_json
from assay.view.view import Fact

STATEMENT = "statement.dsse.json"
ENVIRONMENT = "environment.json"
WORKTREE = "worktree.json"
SHOWN_DIGITS = 12


def read(run: Path, name: str) -> dict[str, Any]:
    """A JSON object of the run's provenance; VerificationError when there is none."""
    path = run / "provenance" / name
    try:
        value = read_json(path)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise VerificationError(f"{path} cannot be read", str(error), f"assay audit {run}") from error
    return value


def of_record(run: Path) -> Iterator[Fact]:
    """Signature, worktree, shell, machine: what every run records in the same files."""
    yield _signature(run)
    if (found := _given(run, WORKTREE)) is not None:
        yield _worktree(found)
    if (found := _given(run, ENVIRONMENT)) is not None:
        yield from _environment(found)


def of_pins(pins: str) -> Iterator[Fact]:
    """Which pin set was in force."""
    yield Fact("pins", pins, "recomputed", pins == "production")


def of_runtime(runtime: str, egress: str) -> Iterator[Fact]:
    """Where rollouts ran, and whether their network was cut."""
    yield Fact("runtime", runtime, "measured")
    # Where no program is started for a rollout there is no network to be cut.
    yield Fact("egress", egress, "measured", egress == "cut" or runtime == "none")


def of_models(served: Mapping[str, str | None]) -> Iterator[Fact]:
    """The models that the run served itself, from files that it hashed."""
    for name, digest in served.items():
        yield Fact("model", f"{name}, SHA-256 {digest or 'not recorded'}", "measured", digest is not None)


def of_server(fingerprint: str | None, name: str = "server") -> Iterator[Fact]:
    """Who the server says it is."""
    yield Fact(name, fingerprint or "offers no identity", "claimed", fingerprint is not None)


def said(problems: Iterable[str], notes: Iterable[str], where: str = "") -> Iterator[Fact]:
    """What the run itself says went wrong."""
    before = f"{where}: " if where else ""
    for problem in problems:
        yield Fact("problem", f"{before}{problem}", "measured", sound=False)
    for note in notes:
        yield Fact("note", f"{before}{note}", "measured")


def _given(run: Path, name: str) -> dict[str, Any] | None:
    return read(run, name) if (run / "provenance" / name).is_file() else None


def _signature(run: Path) -> Fact:
    path = run / STATEMENT
    if not path.is_file():
        return Fact("signature", "not signed: nobody vouches for its bytes", "measured", sound=False)
    try:
        (signature,) = read_json(path)["signatures"]
        key = str(signature["keyid"])[:SHOWN_DIGITS]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return Fact("signature", "a statement is there that cannot be read", "claimed", sound=False)
    return Fact("signature", f"says it is by the key {key}; assay audit --key verifies it", "claimed")


def _worktree(found: Mapping[str, Any]) -> Fact:
    commit = str(found.get("commit") or "no commit")[:SHOWN_DIGITS]
    clean = found.get("clean") is True
    changed = found.get("changed")
    count = len(changed) if isinstance(changed, list) else 0
    return Fact("worktree", f"{commit}, {'clean' if clean else f'{count} path(s) differ'}", "measured", clean)


def _environment(found: Mapping[str, Any]) -> Iterator[Fact]:
    shell = found.get("shell")
    pinned = isinstance(shell, Mapping) and shell.get("pinned") is True
    kind = str(found.get("kind"))
    yield Fact("environment", f"{kind}, {'pinned' if pinned else 'not pinned'}", "measured", pinned)
    machine = [found.get(name) for name in ("system", "processor")]
    yield Fact("machine", ", ".join(str(each) for each in machine if each), "measured")
    yield Fact("assay", str(found.get("assay")), "measured")
