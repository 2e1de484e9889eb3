"""`run.log`: what the jobs' children said, for people, one line after the other.

Secrets are taken out before a line comes here (`assay.coordinator.child`) and once more here, since the
coordinator's own words go into it too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from assay.coordinator.redact import Secrets
from assay.files import disk_full
from assay.run.state import now


class RunLog:
    """The writer of a run's log; any thread may call it.

    Args:
        path: The file.
        secrets: What must not be written.
        full: Told, once, the error of the first line that could not be written.
    """

    def __init__(self, path: Path, secrets: Secrets, full: Callable[[Exception], None]) -> None:
        self._path = path
        self._secrets = secrets
        self._full = full
        self._failed = False
        self._lock = threading.Lock()
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def line(self, who: str, text: str) -> None:
        """Append one line.

        Args:
            who: The job, or "assay".
            text: What it said.
        """
        said = self._secrets.text(text).rstrip("\r\n").replace("\n", "\\n")
        data = f"{now()} {who}: {said}\n".encode("utf-8", "replace")
        with self._lock:
            try:
                os.write(self._handle, data)
            except OSError as error:
                first, self._failed = not self._failed, True
                if first:
                    self._full(disk_full(self._path, error))

    def close(self) -> None:
        """Close it; a second call does nothing."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
