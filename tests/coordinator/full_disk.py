"""The command on a disk that is full while a file is there: `full_disk.py FLAG WORDS…`.

Every write to a file and every flush of this process fails then as a full file system's would; its
children's do not.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.cli import main

flag = Path(sys.argv[1])


def failing(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(handle: int, *arguments: Any) -> Any:
        # A terminal, a pipe and a socket are on no disk.
        if handle > 2 and stat.S_ISREG(os.fstat(handle).st_mode) and flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, *arguments)

    return call


os.write = failing(os.write)
os.fsync = failing(os.fsync)
sys.exit(main(sys.argv[2:]))
