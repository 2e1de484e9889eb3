"""Stands in for the coordinator's verbs: what a campaign needs to see of them, and no more.

A run is a folder with `resolved.json` and `state.json`. What the next command does stands in the checkout's
`next.json`: a list of codes to end with, one a command, or "hang" to wait for a signal, which is then written
down and ended with 6.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from assay.cli import answer, shared
from assay.console import say
from assay.paths import ROOT

NEXT = ROOT / "next.json"
SAID = ROOT / "said.jsonl"
PHASES = {0: "done", 4: "partial", 5: "failed", 6: "cancelled"}


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(__name__.rpartition(".")[2], parents=[shared()])
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--suite")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--check-runtime", action="store_true")
    parser.set_defaults(handler=handle, name=__name__.rpartition(".")[2])


def handle(arguments: argparse.Namespace) -> int:
    with SAID.open("a") as file:
        told = {"verb": arguments.name, "suite": arguments.suite, "run": str(arguments.run)}
        file.write(json.dumps(told | {"health": health(), "pid": os.getpid()}) + "\n")
    if arguments.name == "plan":
        print(f"plan of {arguments.suite}")
        if arguments.json:
            answer({"suite": arguments.suite, "expected": 3})
        return 0
    if arguments.name == "status":
        status = json.loads((arguments.run / "state.json").read_text())["phase"]
        answer({"status": "died" if status == "running" else status})
        return {"live": 0, "done": 0}.get(status, 5)
    run = arguments.run or made(arguments)
    say(f"assay: run directory: {run}")
    what = step()
    write(run, "running")
    code = hang() if what == "hang" else die() if what == "die" else int(what)
    write(run, PHASES[code])
    print(f"results of {run.name}")
    return code


def made(arguments: argparse.Namespace) -> Path:
    number = len(list(arguments.runs.glob("*.2*")))
    run: Path = arguments.runs / f"{Path(arguments.suite).stem}.2026-{number}-00000000"
    run.mkdir()
    (run / "resolved.json").write_text("{}")
    return run


def write(run: Path, phase: str) -> None:
    (run / "state.json").write_text(json.dumps({"phase": phase}))


def step() -> int | str:
    waiting = json.loads(NEXT.read_text())
    NEXT.write_text(json.dumps(waiting[1:]))
    found: int | str = waiting[0]
    return found


def hang() -> int:
    got: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: got.append(number))
    (ROOT / "hanging").touch()
    while not got:
        time.sleep(0.02)
    (ROOT / "signalled").write_text(str(got[0]))
    return 6


def die() -> int:
    (ROOT / "hanging").touch()
    while True:
        time.sleep(0.02)


def health() -> int | None:
    """What the server's own record says it was started as, when this verb ran."""
    path = ROOT / "server.json"
    return int(json.loads(path.read_text())["pid"]) if path.exists() else None
