"""Which files of a run are published as they are, which without their texts, and which not at all.

A file is left out unless it is named here: what an evaluator, a model or a program printed may hold a task
or an answer, whatever its name. A run inside a suite's run (a job of `verifiers`) is treated as the whole is,
but for its rows and summary, which the suite's own have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from assay.plan import NAME as RESOLVED
from assay.record.manifest import NAME as MANIFEST
from assay.record.results import SAMPLES, SUMMARY

Fate = Literal["kept", "derived", "omitted"]

INSIDE = re.compile(r"^[^/]+/attempt-\d+/[^/]+(?=/)")
KEPT = re.compile(
    r"^(manifest\.json|statement\.dsse\.json|resolved\.json"
    r"|provenance/(sources|environment|worktree|declared|sandbox|seconds|source)\.json|provenance/suite\.toml"
    r"|provenance/inputs\.[^/]+\.json|provenance/(pins|launch|containers)/.+)$"
)
DERIVED = re.compile(r"^(state\.json|samples\.jsonl|summary\.json|provenance/tasks/[^/]+\.json)$")
SERVER = re.compile(r"^provenance/server/[^/]+\.json$")
OF_THE_WHOLE = frozenset({SAMPLES, SUMMARY})


def fates(paths: Iterable[str]) -> dict[str, Fate]:
    """What becomes of each file.

    Args:
        paths: As the run's manifest names them.
    """
    named = set(paths)
    inside = {match[0] for path in named if (match := INSIDE.match(path))}
    runs = {folder for folder in inside if {f"{folder}/{RESOLVED}", f"{folder}/{MANIFEST}"} <= named}
    return {path: _fate(path, runs) for path in sorted(named)}


def below_run(path: str) -> str:
    """A path as seen from the run that it belongs to, which may be one inside a suite's."""
    match = INSIDE.match(path)
    return path[match.end() + 1 :] if match else path


def _fate(path: str, runs: set[str]) -> Fate:
    match = INSIDE.match(path)
    inner = match is not None and match[0] in runs
    name = below_run(path) if inner else path
    if inner and name in OF_THE_WHOLE:
        return "omitted"
    if KEPT.match(name):
        return "kept"
    return "derived" if DERIVED.match(name) or SERVER.match(name) else "omitted"
