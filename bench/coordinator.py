"""`python -m bench.coordinator`: what the coordinator itself costs, by the number of samples.

Contract: each size is the user's command over a suite of one mock job that asks nobody and takes no time, so
all of the time is the coordinator's: starting, scheduling, watching, reading the records, writing rows and
summary, hashing them into the manifest. It is timed from outside; memory is the most that any of its
processes ever held. From 10^2 to 10^6 processor time must grow with the samples and no faster, and memory
must not: up to some ten thousand samples it holds tables of the bootstrap, whose size is bounded. How time
grows is judged by the processors' time, since wall time is also other programs' and the disk's; the rate is
by wall time.

Exit codes: 0 all of it holds; 3 a run failed; 5 a limit does not hold.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.backends.lines import LineCounter
from assay.console import complain, say
from assay.errors import AssayError, PrerequisiteError
from assay.paths import ROOT
from bench import floors, machine
from bench.floors import Verdict
from bench.launched import launched
from bench.options import bench_parser, whole
from bench.peers_text import verdict_line
from bench.results import table, write_section

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
REPEATS = 4
FLAT_FROM = 100_000
"""Samples from which on memory is compared: below it the bootstrap's tables decide."""
SUITE = """
description = "what the coordinator itself costs"

[target.nobody]
protocol = "none"
max_concurrency = 1

[[job]]
id = "count"
backend = "mock"
dataset = "mock"
target = "nobody"
repeats = {repeats}
generation = {{temperature = 1.0, seed = 1}}
backend_args = {{items = {items}, wrong_every = 3}}
"""


@dataclass(frozen=True)
class Cost:
    """One size.

    Attributes:
        samples: Rows.
        wall_s: Of the whole command.
        cpu_s: Of all its processes together.
        peak_bytes: The most that any of its processes held.
        written_bytes: The run directory's files.
    """

    samples: int
    wall_s: float
    cpu_s: float
    peak_bytes: int
    written_bytes: int

    @property
    def rate(self) -> float:
        """Samples a second, everything included."""
        return self.samples / self.wall_s


def cost(samples: int, folder: Path) -> Cost:
    """Run a suite of so many samples by the user's command, and see that it has them all.

    Args:
        samples: A multiple of `REPEATS`.
        folder: Where the suite and its run are written; the run is there afterwards.

    Raises:
        PrerequisiteError: the run did not end as it should.
    """
    suite = folder / f"cost-{samples}.toml"
    suite.write_text(SUITE.format(items=samples // REPEATS, repeats=REPEATS), "utf-8")
    runs = folder / f"runs-{samples}"
    runs.mkdir()
    words = [str(ROOT / "eval" / "scripts" / "run"), "--suite", str(suite), "--runs", str(runs), "--json"]
    with (folder / "said").open("w+b") as said:
        begin = time.monotonic()
        taken = launched(words, said)
        wall = time.monotonic() - begin
        said.seek(0)
        last = said.read().decode("utf-8", errors="replace").splitlines()[-1:]
    if taken.code != 0:
        raise PrerequisiteError(f"the run of {samples} samples ended with {taken.code}", "".join(last))
    answer: dict[str, Any] = json.loads(last[0])
    run = Path(answer["run_dir"])
    rows = LineCounter(run / "samples.jsonl")()
    if rows != samples:
        raise PrerequisiteError(f"the run of {samples} samples has {rows} rows")
    written = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    return Cost(samples, wall, taken.cpu_s, taken.peak_bytes, written)


def exponent(costs: Sequence[Cost]) -> float | None:
    """How processor time grows over the last step, what the smallest size takes left out: 1 is linear."""
    if len(costs) < 3:
        return None
    fixed, before, after = costs[0].cpu_s, costs[-2], costs[-1]
    if before.cpu_s <= fixed or after.cpu_s <= fixed:
        return None
    ratio = (after.cpu_s - fixed) / (before.cpu_s - fixed)
    return math.log(ratio) / math.log(after.samples / before.samples)


def growth(costs: Sequence[Cost]) -> float | None:
    """Memory at the largest size over that at the smallest from which on it is compared."""
    compared = [each for each in costs if each.samples >= FLAT_FROM]
    return None if len(compared) < 2 else compared[-1].peak_bytes / compared[0].peak_bytes


def verdicts(costs: Sequence[Cost]) -> list[Verdict]:
    """Every limit, over sizes in ascending order."""
    largest = costs[-1]
    return [
        floors.at_least(
            f"samples a second, {largest.samples:,} samples", floors.COORDINATOR_RATE, largest.rate
        ),
        floors.at_most(
            "exponent of processor time over the last step of sizes",
            floors.COORDINATOR_EXPONENT,
            exponent(costs),
        ),
        floors.at_most(
            f"memory at {largest.samples:,} samples over that at {FLAT_FROM:,}",
            floors.COORDINATOR_GROWTH,
            growth(costs),
        ),
    ]


def rows(costs: Sequence[Cost]) -> list[list[str]]:
    """The figures as a table's cells."""
    return [
        [
            f"{each.samples:,}",
            f"{each.wall_s:.1f}",
            f"{each.cpu_s:.1f}",
            f"{each.rate:,.0f}",
            f"{each.peak_bytes / 1e6:.0f}",
            f"{each.written_bytes / 1e6:.1f}",
        ]
        for each in costs
    ]


HEAD = ("samples", "wall s", "processor s", "samples/s", "most ever MB", "written MB")


def markdown(command: str, costs: Sequence[Cost]) -> str:
    """The section of RESULTS.md."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    found = machine.describe()
    return "\n".join(
        [
            "## The coordinator's own cost",
            "",
            f"`{command}`, {stamp}. {found.cpu}, {found.cores} cores, load {os.getloadavg()[2]:.1f} over "
            f"the last quarter of an hour. One mock job that asks nobody, {REPEATS} rollouts an item; the "
            "whole command, from outside.",
            "",
            table(HEAD, rows(costs)),
            *(f"- {verdict_line(each)}" for each in verdicts(costs)),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, judge, print; the exit code."""
    out = bench_parser("coordinator", "What the coordinator itself costs.")
    out.add_argument(
        "--most", type=whole(1), default=SIZES[-1], help="leave out larger sizes (default: %(default)s)"
    )
    options = out.parse_args(arguments)
    costs = []
    try:
        for samples in (size for size in SIZES if size <= options.most):
            # Each size has the disk to itself: a million rows are more than a gigabyte.
            with tempfile.TemporaryDirectory(prefix="bench-coordinator-") as name:
                costs.append(cost(samples, Path(name)))
            said = zip(HEAD, rows(costs[-1:])[0], strict=True)
            say(", ".join(f"{name} {value}" for name, value in said))
    except AssayError as error:
        complain(error)
        return error.exit_code
    judged = verdicts(costs)
    for each in judged:
        say(verdict_line(each))
    met = all(each.met for each in judged)
    if options.write:
        command = f"python -m bench.coordinator {' '.join(sys.argv[1:])}".strip()
        write_section("coordinator", markdown(command, costs))
    if options.json:
        found = [{**asdict(each), "rate": each.rate} for each in costs]
        told = {"floors_met": met, "floors": [asdict(each) for each in judged], "costs": found}
        print(json.dumps(told, allow_nan=False))
    return 0 if met else 5


if __name__ == "__main__":
    sys.exit(main())
