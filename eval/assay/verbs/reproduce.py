"""`assay reproduce RUN`: ask a server again what a run asked, and compare with what it answered then."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO, cast

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.cli import answer, shared
from assay.console import Diagnostics, printable, say
from assay.errors import ConfigurationError
from assay.reproduce.outcome import Outcome, Verdict
from assay.reproduce.question import Chosen
from assay.reproduce.reproduce import Reproduction, reproduce
from assay.reproduce.server import Given, Reached, Wanted
from assay.run.key import KEY_FILE_VARIABLES

STYLES: Mapping[Verdict, str] = {
    "same": "green",
    "differs": "bold red",
    "drawn": "yellow",
    "unanswered": "yellow",
}
MOST = 8
SHOWN = 12


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb's arguments."""
    parser = subparsers.add_parser(
        "reproduce", parents=[shared()], help="ask a server samples of a run again, and compare"
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    parser.add_argument(
        "--target", metavar="NAME", help="a target of the suite; of a profile: own, started here as it was"
    )
    parser.add_argument("--base-url", metavar="URL", help="a server that is there, ending in /v1")
    parser.add_argument("--model", metavar="NAME", help="the name to ask it for (default: the run's)")
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help=f"its key (default, with --base-url alone: the path in ${', else $'.join(KEY_FILE_VARIABLES)})",
    )
    parser.add_argument(
        "-n", type=_positive, default=MOST, metavar="N", dest="most", help=f"samples (default: {MOST})"
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="picks the samples (default: a random one, which is told)"
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Ask, print what was found, and return 0, 3 or 5."""
    given = Given(arguments.target, arguments.base_url, arguments.model, arguments.key_file)
    found = reproduce(arguments.run, given, arguments.most, arguments.seed, _told)
    stream = cast("TextIO", Diagnostics()) if arguments.json else sys.stdout
    console = Console(file=stream, highlight=False)
    with console.capture() as captured:
        console.print(_table(found.outcomes))
        console.print(Text(printable(_words(found))))
    stream.write(captured.get())
    if arguments.json:
        answer(found.describe())
    return found.exit_code


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise ConfigurationError(f"-n is {text}", "it is a number of samples", "-n 8")
    return value


def _told(seed: int, chosen: Chosen, wanted: Wanted, server: Reached) -> None:
    """Say what will be asked and of whom; how the server differs stands before any answer."""
    say(f"assay: seed {seed} picks {chosen.samples} of {chosen.finished} finished samples of {wanted.asked}")
    for text in chosen.left_out:
        say(f"assay: left out: {text}")
    where = "started here" if wanted.own else ", ".join(each.base_url for each in server.endpoints)
    say(f"assay: asked is {server.endpoints[0].model}, {where}")
    if wanted.model != server.endpoints[0].model:
        say(f"assay: the run asked for {wanted.model}: the name in each request is another one now")
    if not server.before:
        say("assay: the run holds no record of its server to compare with")
    elif not server.differences:
        say("assay: it tells of itself what the run's server did (its own word)")
    for text in server.differences:
        say(f"assay: the server is not as it was: {text}")


def _table(outcomes: tuple[Outcome, ...]) -> Table:
    grid = Table("sample", "verdict", box=box.SIMPLE)
    grid.add_column("how it differs", overflow="fold")
    for outcome in outcomes:
        name = " ".join(
            f"{key} {value}" if type(value) is int else f"{value}"
            for key, value in outcome.question.of.items()
        )
        lines = list(outcome.why[:SHOWN])
        if outcome.verdict == "drawn":
            lines.insert(0, "it was drawn at random without a seed: another answer tells nothing")
        if outcome.usage:
            lines.append(f"tokens: {outcome.usage}")
        text = Text(printable("\n".join(lines)))
        grid.add_row(Text(printable(name)), Text(outcome.verdict, STYLES[outcome.verdict]), text)
    return grid


def _words(found: Reproduction) -> str:
    counts = found.describe()["counts"]
    total = len(found.outcomes)
    told = [f"{counts['same']} of {total} answers are the same (seed {found.seed})"]
    if counts["differs"]:
        told.append(f"{counts['differs']} differ")
    if counts["drawn"]:
        told.append(f"{counts['drawn']} were drawn without a seed and differ, which tells nothing")
    if counts["unanswered"]:
        told.append(f"{counts['unanswered']} got no answer")
    return "; ".join(told)
