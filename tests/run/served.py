"""Runs against a server that is already there, and what they recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from standin import StandIn
from toy_checkout import Done, Toy


def asked(toy: Toy, server: StandIn, runs: Path, *words: str | Path, **variables: str) -> Done:
    """A run of the profile `pair` against the server."""
    address = ("--base-url", server.base_url, "--model", server.model, "--runs", runs, "--json")
    return toy.run("run", "pair", *words, *address, **variables)


def record(done: Done, name: str = "second.before") -> dict[str, Any]:
    """One of the run's records of the server."""
    path = Path(done.json["run_dir"]) / f"provenance/server/{name}.json"
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def verdict(toy: Toy, done: Done, name: str) -> tuple[str, str]:
    """The audit's verdict and evidence for a check."""
    checks = toy.run("audit", done.json["run_dir"], "--json").json["checks"]
    found = next(check for check in checks if check["name"] == name)
    return found["verdict"], "\n".join(found["evidence"])
