"""`assay status RUN`: where a run stands; tells a live one from one whose process has died."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.cli import answer, shared
from assay.run.state import load_state


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser("status", parents=[shared()], help="say what became of a run")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=status)


def status(arguments: argparse.Namespace) -> int:
    """Print the run's standing and return its exit code (0 while it is live)."""
    state = load_state(arguments.run)
    print(f"{arguments.run}: {state.standing}")
    for entry in state.entries:
        print(f"  {entry.name}: {entry.finished}/{entry.planned} rollouts")
    if state.standing == "died":
        print(f"  its process {state.owner.pid} is gone; what had finished is in the native records")
    if state.error:
        print(f"  {state.error}")
    if arguments.json:
        answer(
            {
                "run_dir": str(arguments.run.resolve()),
                "status": state.standing,
                "exit_code": state.exit_code,
                "phase": state.phase,
                "entries": [entry.model_dump() for entry in state.entries],
                "error": state.error,
            }
        )
    return state.exit_code
