"""`assay status RUN`: where a run stands, and how it is resumed: a suite's by Assay, a profile's natively."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from assay.cli import answer, shared
from assay.console import printable
from assay.coordinator.state import is_suite
from assay.errors import AssayError
from assay.plan import NAME, load_plan
from assay.run.recipe import WARNING, Recipe, recipes
from assay.run.state import exit_code, load_state


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "status",
        parents=[shared()],
        help="say what became of a run, and how to resume it natively",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.set_defaults(handler=status)


def status(arguments: argparse.Namespace) -> int:
    """Print the run's standing and return its exit code (0 while it is live)."""
    if is_suite(arguments.run):
        # Here alone: a profile's run needs none of it.
        from assay.coordinator.command import status_of_suite

        return status_of_suite(arguments.run, arguments.json)
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
    # While a run is live its native records are its own.
    found: dict[str, list[Recipe]] = {}
    if standing != "live":
        try:
            plan = load_plan(arguments.run / NAME)
            found = {entry.name: recipes(arguments.run, plan, entry) for entry in plan.entries}
        except AssayError as error:
            print(printable(f"\nno native resume can be told: {error}"))
    _show(found)
    if arguments.json:
        answer(
            {
                "run_dir": str(arguments.run.resolve()),
                "status": standing,
                "exit_code": code,
                "phase": state.phase,
                "entries": [entry.model_dump() for entry in state.entries],
                "error": state.error,
                "resume": {name: [vars(recipe) for recipe in entry] for name, entry in found.items()},
            }
        )
    return code


def _show(found: Mapping[str, list[Recipe]]) -> None:
    if not found:
        return
    print(f"\nnative resume ({WARNING}):")
    for entry in found.values():
        for recipe in entry:
            print(f"\n# {recipe.folder}: {recipe.owed} rollout(s) owed")
            for note in recipe.notes:
                print(printable(f"# {note}"))
            for line in recipe.lines:
                print(line)
