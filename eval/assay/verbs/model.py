"""`assay model fetch|check|list`: served models by digest."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

from assay.cli import answer, shared
from assay.console import say
from assay.models import entry, fetch, pins, verify
from assay.paths import relative


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "model",
        help="fetch and verify served models (models.lock)",
        description="Fetch, verify or list the served models that models.lock pins.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    fetching = actions.add_parser(
        "fetch", parents=[shared()], help="download a model by digest, or find it here"
    )
    fetching.add_argument("name", metavar="NAME", help="a name of models.lock")
    fetching.add_argument("--check", action="store_true", help="only verify what is here; download nothing")
    fetching.add_argument("--replace", action="store_true", help="download again if the file here is wrong")
    fetching.set_defaults(handler=handle_fetch)
    listing = actions.add_parser("list", parents=[shared()], help="the pinned models")
    listing.set_defaults(handler=handle_list)


def handle_fetch(arguments: argparse.Namespace) -> int:
    """Fetch or verify one model and print where it is."""
    begin = time.monotonic()
    path = verify(arguments.name) if arguments.check else fetch(arguments.name, arguments.replace)
    pin = entry(arguments.name)
    print(f"{pin.name}: {relative(path)}, {pin.size_bytes} bytes, sha256 {pin.sha256}")
    say(f"assay: verified: {time.monotonic() - begin:.1f} s")
    if arguments.json:
        answer({"status": "ok", "path": str(path), **asdict(pin)})
    return 0


def handle_list(arguments: argparse.Namespace) -> int:
    """Print every pinned model, and whether it is here (its size alone is looked at)."""
    known = pins()
    for pin in known.values():
        here = pin.path.is_file() and pin.path.stat().st_size == pin.size_bytes
        print(f"{pin.name}: {'fetched' if here else 'not fetched'}; {pin.source}; {pin.licence}")
    if arguments.json:
        answer({"status": "ok", "models": [asdict(pin) for pin in known.values()]})
    return 0
