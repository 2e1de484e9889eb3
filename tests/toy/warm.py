"""Runs `assay` commands in forks of one process that has imported it, so that a test waits for no import.

Reads one JSON request a line (`argv`, `cwd`, `env`, `stdout`, `stderr`), runs the real `assay.cli.main` in a
process of its own, answers with its id, and with its exit code when it has ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import sys
from typing import Any

from assay.cli import main

for name in ("run", "resume", "status", "summarize", "audit", "reward"):
    importlib.import_module(f"assay.verbs.{name}")
for name in ("coordinator.command", "audit.suite_checks", "backends.mock"):
    importlib.import_module(f"assay.{name}")
importlib.import_module("scipy.stats")
# What is imported stays shared with the forks: collecting garbage there would copy it page by page.
gc.freeze()


def become(request: dict[str, Any]) -> None:
    """Give this process the streams, the folder and the variables of the request."""
    for number, name in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(str(name), flags, 0o600), number)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])


while True:
    if select.select([sys.stdin.fileno()], [], [], 0.01)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        pid = os.fork()
        if pid == 0:
            become(json.loads(line))
            sys.exit(main(json.loads(line)["argv"]))
        print(json.dumps({"started": pid}), flush=True)
    try:
        ended, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        continue
    if ended:
        print(json.dumps({"ended": ended, "code": os.waitstatus_to_exitcode(status)}), flush=True)
