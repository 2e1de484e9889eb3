"""Reading what a run directory says, for a statement: files that it recorded, bounded, no link followed.

What a file says may be a stranger's: a shape that is not the expected one is nothing said, and never a crash.
"""

from __future__ import annotations

import json
import os
import stat
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.errors import VerificationError
from assay.record.manifest import load_manifest
from assay.signing.predicate import Descriptor

LARGEST_BYTES = 64 << 20


class Reading:
    """A run directory that has its manifest."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @cached_property
    def manifest(self) -> dict[str, str]:
        """Recorded digests by path; VerificationError where there is no manifest."""
        return load_manifest(self.run)

    def bytes(self, name: str) -> bytes | None:
        """A recorded file's bytes; None where it is not recorded, not there, or no regular file."""
        recorded = self.manifest.get(name, "").startswith("sha256:")
        # A hostile manifest may name a place outside of the run.
        if not recorded or not {"", ".", ".."}.isdisjoint(name.split("/")):
            return None
        return read_regular(self.run / name, LARGEST_BYTES)

    def json(self, name: str) -> dict[str, Any]:
        """The JSON object in a recorded file; empty where it has none."""
        try:
            value = json.loads(self.bytes(name) or b"{}")
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def texts(self, name: str, key: str) -> dict[str, str]:
        """The texts by name in a table of a recorded file; empty where it has none."""
        value = self.json(name).get(key)
        found = value if isinstance(value, dict) else {}
        return {str(each): text for each, text in found.items() if isinstance(text, str)}

    def descriptor(self, name: str) -> Descriptor | None:
        """A recorded file by its digest; None where it is not recorded."""
        digest = self.manifest.get(name, "")
        if not digest.startswith("sha256:"):
            return None
        return Descriptor(name=name, digest={"sha256": digest.removeprefix("sha256:")})

    def below(self, folder: str) -> tuple[Descriptor, ...]:
        """The recorded files below a folder, by name."""
        names = sorted(name for name in self.manifest if name.startswith(folder))
        return tuple(found for found in map(self.descriptor, names) if found is not None)


def read_regular(path: Path, maximum_bytes: int) -> bytes | None:
    """A regular file's bytes, no link followed; None when it is not there or none.

    Raises:
        VerificationError: it is larger than may be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        data = file.read(maximum_bytes + 1)
    if len(data) > maximum_bytes:
        raise VerificationError(f"{path} is larger than {maximum_bytes} bytes", "", "restore it")
    return data
