"""A server to be started by a campaign: it answers at /health, and does what its options say.

It writes its process id and what it was given to `server.json` in its working directory, and removes that
when it ends in peace.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--loads", type=float, default=0.0, help="seconds in which it answers 503")
parser.add_argument("--breaks", action="store_true", help="end at once")
parser.add_argument("--stubborn", action="store_true", help="take no notice of SIGTERM")
parser.add_argument("--worker", action="store_true", help="start a process of its own")
parser.add_argument("--dies", help="end when a file of this name appears")
parser.add_argument("--context", default="")
arguments = parser.parse_args()

print("a server, key", os.environ.get("SERVER_KEY"), "in its environment", flush=True)
if arguments.breaks:
    print("no memory for this context", flush=True)
    sys.exit(7)
worker = (
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) if arguments.worker else None
)
record = Path("server.json")
record.write_text(
    json.dumps(
        {
            "pid": os.getpid(),
            "worker": worker.pid if worker else None,
            "words": sys.argv[1:],
            "variables": dict(os.environ),
        }
    )
)
begin = time.monotonic()


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ready = time.monotonic() - begin >= arguments.loads
        self.send_response(200 if ready and self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


def stop(number: int, frame: object) -> None:
    if not arguments.stubborn:
        threading.Thread(target=server.shutdown).start()


def watch() -> None:
    while not Path(arguments.dies).exists():
        time.sleep(0.02)
    os._exit(9)


signal.signal(signal.SIGTERM, stop)
if arguments.dies:
    threading.Thread(target=watch, daemon=True).start()
server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Answer)
server.daemon_threads = True
server.serve_forever(0.02)
server.server_close()
record.unlink()
print("ended in peace", flush=True)
