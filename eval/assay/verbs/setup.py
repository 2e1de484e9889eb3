"""`assay setup [NAME …] [--check] [--sources-only] [--mirror M] [--python P] [--rebuild]`: environments."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from assay import sources
from assay.cli import answer, shared
from assay.console import say, step
from assay.errors import ConfigurationError
from assay.paths import relative
from assay.report.library import Library
from assay.setup import ENVIRONMENTS, Environment, EnvironmentState, check, ensure_all, library, named
from assay.setup.programs import verify_programs
from assay.setup.tool import Runner
from assay.setup.turn import turn

DEFAULT = ("assay", "verifiers")
UNHASHED = ("name", "directory", "python_version", "python_path", "uv_version", "locks", "versions")


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command."""
    parser = subparsers.add_parser(
        "setup",
        parents=[shared()],
        help="make and check the locked environments",
        description=(
            "Make the locked environments and fetch the pinned sources that some of them take packages from, "
            "bring them up to date, or check every byte of both."
        ),
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(ENVIRONMENTS)}, or all (default: {' and '.join(DEFAULT)})",
    )
    parser.add_argument("--check", action="store_true", help="hash what is there and change nothing")
    parser.add_argument(
        "--sources-only",
        action="store_true",
        help="only the pinned sources (default: of every environment that has some)",
    )
    parser.add_argument(
        "--mirror",
        metavar="DIR|URL",
        help="fetch sources from bare repositories in a directory, or under an address",
    )
    parser.add_argument("--python", metavar="P", help="make them with this Python (else one is found)")
    parser.add_argument("--rebuild", action="store_true", help="make them again from the start")
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Make or check the environments and sources, and print one line for each."""
    refuse_contradictions(arguments)
    begin = time.monotonic()
    environments = chosen(arguments)
    shown: dict[str, Any] = {"status": "ok"}
    charts: Library | None = None
    if arguments.sources_only:
        found = get_sources(environments, arguments.check, arguments.mirror)
    elif arguments.check:
        states = [check(item) for item in environments]
        found = [sources.verify(name) for name in source_names(environments)]
        shown["environments"] = [asdict(state) for state in states]
        shown["programs"] = programs(environments)
        charts = library.verify() if has_charts(environments) else None
        report(states, checked=True)
    else:
        mirror = sources.read_mirror(arguments.mirror)
        states = ensure_all(environments, arguments.python, arguments.rebuild, mirror)
        charts = library.fetch() if has_charts(environments) else None
        found = []
        # The digests are those of the last check, not of now: only --check may claim them.
        shown["environments"] = [{key: asdict(state)[key] for key in UNHASHED} for state in states]
        report(states, checked=False)
    report_sources(found)
    if charts is not None:
        print(f"{charts.name} {charts.library_version}: {len(charts.files)} files as pinned")
        shown["library"] = asdict(charts)
    shown["sources"] = [{**asdict(item), "path": relative(item.path)} for item in found]
    say(f"assay: {'checked' if arguments.check else 'ready'}: {time.monotonic() - begin:.1f} s")
    if arguments.json:
        answer(shown)
    return 0


def refuse_contradictions(arguments: argparse.Namespace) -> None:
    """Raise ConfigurationError for options that contradict one another."""
    if arguments.check and (arguments.rebuild or arguments.python or arguments.mirror):
        raise ConfigurationError(
            "--check changes nothing, so it cannot be combined with --rebuild, --python or --mirror",
            "",
            "eval/scripts/setup --check",
        )
    if arguments.sources_only and (arguments.rebuild or arguments.python):
        raise ConfigurationError(
            "--sources-only makes no environment, so it cannot be combined with --rebuild or --python",
            "a source that is not as pinned is never replaced",
            "eval/scripts/setup --sources-only",
        )


def chosen(arguments: argparse.Namespace) -> list[Environment]:
    """The environments that the names ask for."""
    if "all" in arguments.names:
        every = [name for name, item in ENVIRONMENTS.items() if not item.aside]
        return named([*every, *(name for name in arguments.names if name != "all")])
    if arguments.names:
        return named(arguments.names)
    if arguments.sources_only:
        return [item for item in ENVIRONMENTS.values() if item.sources]
    return named(DEFAULT)


def has_charts(environments: Sequence[Environment]) -> bool:
    """Whether the report's chart library belongs to what was asked for: it is the core's."""
    return any(item.name == "assay" for item in environments)


def source_names(environments: Sequence[Environment]) -> list[str]:
    """The sources of the environments, each once."""
    return list(dict.fromkeys(name for item in environments for name in item.sources))


def get_sources(
    environments: Sequence[Environment], only_check: bool, place: str | None
) -> list[sources.Checkout]:
    """The environments' sources, verified; fetched first unless that is not wanted."""
    names = source_names(environments)
    if only_check:
        return [sources.verify(name) for name in names]
    mirror = sources.read_mirror(place)
    with turn() as handle:
        return sources.fetch_all(names, mirror, Runner(handle))


def programs(environments: Sequence[Environment]) -> dict[str, dict[str, str]]:
    """The digests of what environments with sources give to the sandbox, each found to be the pinned one.

    Where there are no sources the packages' digests cover the programs.
    """
    found = {}
    for item in environments:
        if item.sources and item.programs:
            with step(f"{item.name}: the programs it gives to the sandbox, against their digests"):
                found[item.name] = verify_programs(item)
    return found


def report(states: Sequence[EnvironmentState], checked: bool) -> None:
    """Print one line for each environment: what it is, in numbers, and its digest if it was just taken."""
    for state in states:
        verdict = f"{state.files} files as installed, sha256 {state.digest}" if checked else "ready"
        packages = f"Python {state.python_version}, {len(state.versions)} packages"
        print(f"{state.name}: {packages}: {verdict}")


def report_sources(found: Sequence[sources.Checkout]) -> None:
    """Print one line for each source: its revision, and the digest over its files."""
    for item in found:
        print(f"source {item.name}: {item.revision}: {item.files} files as committed, sha256 {item.digest}")
