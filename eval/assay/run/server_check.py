"""Is the server still the one that the run began with, and did it bring its key into the record?"""

from __future__ import annotations

import json
import mmap
import stat
from pathlib import Path

from assay.errors import AssayError
from assay.run import provenance
from assay.run.endpoint import Endpoint, probe
from assay.run.identity import Identity, differences
from assay.run.key import Key

# A shorter key may stand anywhere by chance; such a one protects nothing.
SHORTEST_SECRET = 12


def look_again(run: Path, entry: str, when: str, endpoint: Endpoint, first: Identity) -> list[str]:
    """Ask the server who it is, record it, and say how it differs from the one that the run began with.

    Args:
        run: The run directory.
        entry: The entry.
        when: "before" or "after" it.
        endpoint: The server.
        first: Who it was at the beginning.

    Returns:
        What fails the run; empty when it is the same server.
    """
    try:
        found = probe(endpoint)
    except AssayError as error:
        return [f"{entry}: the server cannot be identified any more: {error}"]
    provenance.record_server(run, entry, when, found)
    changed = differences(first.describe(), found.describe())
    return [f"{entry}: the server is not the one that the run began with: {what}" for what in changed]


def leaks(run: Path, key: Key | None, whose: str = "the endpoint's key") -> list[str]:
    """What fails a run whose files hold a key, because a server or an evaluator repeated it.

    The evaluator's own records are left as they are: such a run must not be handed on.

    Args:
        run: The run directory.
        key: The key; None for none.
        whose: What it is called.
    """
    if key is None or len(key.reveal()) < SHORTEST_SECRET:
        return []
    secret = key.reveal()
    spellings = {secret.encode(), json.dumps(secret)[1:-1].encode()}
    files = sorted(path for path in run.rglob("*") if stat.S_ISREG(path.lstat().st_mode))
    found = [path.relative_to(run).as_posix() for path in files if _holds(path, spellings)]
    return [f"{name} holds {whose}: hand this run to nobody, and change the key" for name in found]


def _holds(path: Path, spellings: set[bytes]) -> bool:
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(each) >= 0 for each in spellings)
