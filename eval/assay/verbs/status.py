"""`assay status RUN`: where a run stands; tells a live one from one whose process has died."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.cli import answer, shared
from assay.console import printable
from assay.run.state import exit_code, load_state


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser("status", parents=[shared()], help="say what became of a run")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=status)


def status(arguments: argparse.Namespace) -> int:
    """Print the run's standing and return its exit code (0 while it is live)."""
    state = load_state(arguments.run)
    standing = state.standing(arguments.run)
    code = exit_code(standing, state)
    print(printable(f"{arguments.run}: {standing}"))
    for entry in state.entries:
        print(f"  {entry.name}: {entry.finished}/{entry.planned} rollouts")
    if standing == "died":
        print(f"  its process {state.owner.pid} is gone; what had finished is in the native records")
        print(f"  next: assay summarize {arguments.run}")
    if state.error:
        print(printable(f"  {state.error}"))
    if arguments.json:
        answer(
            {
                "run_dir": str(arguments.run.resolve()),
                "status": standing,
                "exit_code": code,
                "phase": state.phase,
                "entries": [entry.model_dump() for entry in state.entries],
                "error": state.error,
            }
        )
    return code
