"""`python -m server`, and what it imported, opened and started once its ready file stood.

Run as `python -m tests.server.http.watched MODEL --port 0 --ready-file FILE …`; the list is written to the
file that `SEEN` names, one JSON line each, when the server has ended.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from server.__main__ import main

SEEN = "WATCHED_SEEN"
EVENTS = frozenset({"import", "open", "os.listdir", "os.scandir", "subprocess.Popen"})


def watch() -> list[tuple[str, str]]:
    """Note from now on what the interpreter does after the ready file has its name."""
    ready = sys.argv[sys.argv.index("--ready-file") + 1]
    seen: list[tuple[str, str]] = []
    armed = False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal armed
        if event == "os.rename" and str(arguments[1]) == ready:
            armed = True
        elif armed and event in EVENTS:
            seen.append((event, str(arguments[0])))

    sys.addaudithook(hook)
    return seen


if __name__ == "__main__":
    seen = watch()
    code = main()
    told = [json.dumps(each) for each in seen]
    Path(os.environ[SEEN]).write_text("\n".join(told))
    sys.exit(code)
