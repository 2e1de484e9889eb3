"""`python -m server MODEL …`: the stand-in behind the real server's command line, with scripted faults.

Faults stand in `.assay/toy-faults.json`, outside of what a run freezes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import threading
from pathlib import Path

from server.standin import Reply, StandIn


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    for option in ("host", "port", "name", "slots"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--key-file", type=Path)
    parser.add_argument("--ready-file", type=Path)
    arguments = parser.parse_args()
    path = Path(".assay/toy-faults.json")
    faults = json.loads(path.read_text()) if path.exists() else {}
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    if "never_ready" in faults:
        Path(faults["never_ready"]).touch()
        ended.wait()
        return 0
    if "refuses" in faults:
        print(faults["refuses"], file=sys.stderr)
        return 3
    file_sha256 = hashlib.sha256(arguments.model.read_bytes()).hexdigest()
    identity = {
        "schema": "assay/identity/v1",
        "model": {"name": arguments.name, "file_sha256": file_sha256},
        "system_fingerprint": "assay-0123456789abcdef",
    }

    def reply(number: int, body: object) -> Reply:
        if number >= faults.get("dies_after", 1 << 30):
            os._exit(9)
        return Reply(delay_s=faults.get("delay_s", 0.0))

    key = arguments.key_file.read_text()
    with StandIn(reply=reply, key=key, model=arguments.name, identity=lambda number: identity) as server:
        port = server.server.server_address[1]
        temporary = arguments.ready_file.with_suffix(".tmp")
        temporary.write_text(json.dumps({"port": port, "pid": os.getpid()}))
        temporary.replace(arguments.ready_file)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
