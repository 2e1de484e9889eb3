"""`assay data TASKSET… [--check | --write-pins] [--mirror DIR] [--yes]`: pinned task data."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from assay.cli import answer, shared
from assay.console import complain, say
from assay.data.fetch import fetch
from assay.data.pins import EVERYTHING, amount, choose, command, datasets, unpinned
from assay.data.verify import Snapshot, verify
from assay.data.write import write_pins
from assay.errors import AssayError, ConfigurationError, VerificationError
from assay.paths import relative
from assay.setup.build import stop_on_sigterm


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "data",
        parents=[shared()],
        help="fetch and verify pinned task data (datasets.lock)",
        description="Fetch pinned task data into the checkout's own cache, or verify what is there.",
        epilog="HF_ENDPOINT names another hub and HF_TOKEN opens gated repositories, as in the hub's own "
        "library; MODELSCOPE_ENDPOINT another ModelScope, as in its; ASSAY_GITHUB_ENDPOINT and "
        "ASSAY_BUCKET_ENDPOINT other hosts of repositories and of buckets. Hosts are asked over "
        "https, or over http on this machine.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="TASKSET", help=f"names of datasets.lock, or {EVERYTHING}"
    )
    parser.add_argument("--check", action="store_true", help="hash what is here and change nothing")
    parser.add_argument(
        "--mirror",
        metavar="DIR",
        type=Path,
        help="take the files from a directory: DIR/TASKSET/PATH, a hub cache, another checkout's eval/.data",
    )
    parser.add_argument(
        "--write-pins",
        action="store_true",
        help="fetch what is listed as unpinned, and write its digests into datasets.lock, for a review",
    )
    parser.add_argument("--yes", action="store_true", help="fetch 1 GB or more without asking")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Fetch or verify, and print one line for each dataset."""
    if not arguments.names:
        known = ", ".join(f"{item.name} ({amount(item.size_bytes)})" for item in datasets().values())
        waiting = ", ".join(unpinned())
        told = f"known: {known}, and {EVERYTHING}" + (f"; not pinned yet: {waiting}" if waiting else "")
        raise ConfigurationError("which task data?", told, command("NAME"))
    if arguments.write_pins and (arguments.check or arguments.mirror):
        raise ConfigurationError(
            "--write-pins asks the publishers, so it cannot be combined with --check or --mirror",
            "a copy's digests would be those of whoever made the copy",
            command("--write-pins NAME"),
        )
    if arguments.check and (arguments.mirror or arguments.yes):
        raise ConfigurationError(
            "--check fetches nothing, so it cannot be combined with --mirror or --yes",
            "",
            command("--check NAME"),
        )
    begin = time.monotonic()
    stop_on_sigterm()
    if arguments.check:
        found = check(arguments.names)
    elif arguments.write_pins:
        found = write_pins(arguments.names, arguments.yes)
        report(found)
        say("assay: look at what was written (git diff datasets.lock), then commit it")
    else:
        found = fetch(arguments.names, arguments.mirror, arguments.yes)
        report(found)
    elapsed = time.monotonic() - begin
    say(f"assay: verified: {amount(sum(item.size_bytes for item in found))}, {elapsed:.1f} s")
    if arguments.json:
        answer({"status": "ok", "datasets": [described(item) for item in found]})
    return 0


def check(names: Sequence[str]) -> list[Snapshot]:
    """Verify each dataset; every error is printed, and the gravest raised once all were looked at."""
    found: list[Snapshot] = []
    errors: list[AssayError] = []
    for dataset in choose(names):
        try:
            found.append(verify(dataset.name, watched=True))
            report(found[-1:])
        except AssayError as error:
            errors.append(error)
    if errors:
        errors.sort(key=lambda item: isinstance(item, VerificationError))
        for other in errors[:-1]:
            complain(other)
        raise errors[-1]
    return found


def report(found: Sequence[Snapshot]) -> None:
    """Print what is here, a line for each dataset."""
    for item in found:
        files = f"{len(item.files)} file{'s' if len(item.files) > 1 else ''}"
        print(f"{item.name}: {relative(item.path)}: {files}, {item.size_bytes} bytes, sha256 {item.digest}")


def described(item: Snapshot) -> dict[str, object]:
    """A snapshot as JSON."""
    return {
        "name": item.name,
        "path": str(item.path),
        "revision": item.revision,
        "sha256": item.digest,
        "size_bytes": item.size_bytes,
        "files": dict(item.files),
    }
