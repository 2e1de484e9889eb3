"""A server that answers each question by its bytes, and what a run directory holds, byte for byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from standin import Reply, StandIn


def honest(number: int, body: dict[str, Any]) -> Reply:
    """The same answer to the same messages."""
    text = json.dumps(body["messages"], sort_keys=True).encode()
    return Reply(f"<answer>{hashlib.sha256(text).hexdigest()[:6]}</answer>")


def serving(**fields: Any) -> StandIn:
    """An honest server that claims an identity."""
    identity = {"schema": "assay/identity/v1", "system_fingerprint": "assay-0123456789abcdef"}
    return StandIn(**{"reply": honest, "identity": lambda number: identity, **fields})


def held(run: Path) -> dict[str, str]:
    """Every file of a directory by its digest, with the moment of its last change."""
    return {
        path.relative_to(
            run
        ).as_posix(): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.lstat().st_mtime_ns}"
        for path in sorted(run.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
