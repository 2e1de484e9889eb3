"""`python -m bench.memory`: what the engine keeps in memory, and whether requests leave any behind.

Contract: the engine's memory is the growth of a process's resident bytes, allocations and mapped pages
together, from before the model is opened (interpreter and libraries are there by then; its copy of the
metadata is not made) to after every position of every slot was written. It may be 1.15 times the model file
plus the keys and values. Flatness is of the real server: its resident bytes are sampled while short
requests run, eight at once; the slope is Theil and Sen's with its 95 % interval, after the first fifth, in
which caches fill.

Exit codes: 0 both hold; 3 something is missing; 5 one does not hold.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
from scipy import stats

from assay.console import complain, say
from assay.errors import AssayError, PrerequisiteError
from assay.models import verify
from bench import floors, machine
from bench.floors import Verdict
from bench.options import add_model, bench_parser, whole
from bench.peers import MODEL, OPEN_S, open_side
from bench.peers_text import verdict_line
from bench.results import table, write_section
from bench.serving import NAME, server
from bench.sides.protocol import SideError, token_ids

FILL_S = 600.0
AT_ONCE = 8
SAMPLES = 100
WARM_SHARE = 0.2
SHAPES = ((1, 2048), (8, 512))  # slots, context


@dataclass(frozen=True)
class Footprint:
    """The engine's memory at one size.

    Attributes:
        slots: Sequences held.
        context: Positions of each, all written.
        kv: How keys and values are kept.
        engine_bytes: Growth of the resident bytes.
        mapped_bytes: Growth of those that belong to files, in it.
        peak_bytes: The most it ever was above the interpreter, while loading included.
        file_bytes: Of the model.
        kv_bytes: Of keys and values.
    """

    slots: int
    context: int
    kv: str
    engine_bytes: int
    mapped_bytes: int
    peak_bytes: int
    file_bytes: int
    kv_bytes: int

    @property
    def ratio(self) -> float:
        """(engine - keys and values) / file."""
        return (self.engine_bytes - self.kv_bytes) / self.file_bytes


@dataclass(frozen=True)
class Flatness:
    """The server's memory over many requests.

    Attributes:
        requests: Answered.
        resident_bytes: Samples, evenly spaced over the requests.
        bytes_per_request: The slope after the first fifth.
        low: Its lower bound, 95 %.
        high: Its upper bound.
    """

    requests: int
    resident_bytes: tuple[int, ...]
    bytes_per_request: float
    low: float
    high: float

    @property
    def growth_share(self) -> float:
        """What 10,000 requests add, as a share of the memory; 0 where the slope may be none."""
        if self.low <= 0:
            return 0.0
        return 10_000 * self.bytes_per_request / self.resident_bytes[-1]


def footprint(model: Path, slots: int, context: int, kv: str, folder: Path) -> Footprint:
    """Open the model in a fresh process, write every position, and read what it keeps."""
    with ExitStack() as stack:
        side = open_side("assay", folder, stack)
        before = side.ask("resident", OPEN_S)
        opened = side.ask(
            "open",
            OPEN_S,
            model=str(model),
            threads=min(2, os.cpu_count() or 1),
            context=context,
            slots=slots,
            kv=kv,
            bare=True,
        )
        side.ask("decode", FILL_S, context=context - 1, tokens=1, seed=1, batch=slots)
        after = side.ask("resident", OPEN_S)
    return Footprint(
        slots=slots,
        context=context,
        kv=kv,
        engine_bytes=after["resident_bytes"] - before["resident_bytes"],
        mapped_bytes=after["file_bytes"] - before["file_bytes"],
        peak_bytes=after["peak_bytes"] - before["resident_bytes"],
        file_bytes=model.stat().st_size,
        kv_bytes=slots * context * opened["kv_bytes_per_position"],
    )


def flatness(model: Path, requests: int, folder: Path) -> Flatness:
    """Run so many short requests through the real server and watch its memory.

    Raises:
        PrerequisiteError: the server did not get ready, or refused a request.
    """
    with server(model, folder, min(2, os.cpu_count() or 1), None) as (port, pid):
        every = max(1, requests // SAMPLES)
        numbers, lock = itertools.count(1), threading.Lock()
        samples: list[tuple[int, int]] = []

        def work() -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                while True:
                    with lock:
                        number = next(numbers)
                        if number > requests:
                            return
                        if number % every == 0:
                            samples.append((number, machine.memory_of(pid)["resident_bytes"]))
                    ask(client, number)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(work) for _ in range(AT_ONCE)]:
                done.result()
        samples.append((requests, machine.memory_of(pid)["resident_bytes"]))
    return judge(requests, samples)


def ask(client: httpx.Client, number: int) -> None:
    """One short request; PrerequisiteError where it is refused."""
    body = {
        "model": NAME,
        "prompt": token_ids(4 + number % 9, number, 40_000),
        "max_tokens": 1 + number % 4,
        "temperature": number % 2,
        "seed": number,
        "stream": number % 3 == 0,
    }
    answer = client.post("/v1/completions", json=body)
    if answer.status_code != 200:
        raise PrerequisiteError("the server refused a request", answer.text[:500])


def judge(requests: int, samples: Sequence[tuple[int, int]]) -> Flatness:
    """The slope of (requests, resident bytes) after the first fifth."""
    steady = [sample for sample in samples if sample[0] >= WARM_SHARE * requests]
    slope = stats.theilslopes([size for _, size in steady], [number for number, _ in steady], 0.95)
    return Flatness(
        requests,
        tuple(size for _, size in samples),
        float(slope.slope),
        float(slope.low_slope),
        float(slope.high_slope),
    )


def verdicts(footprints: Sequence[Footprint], flat: Flatness | None) -> list[Verdict]:
    """Every limit."""
    out = [
        floors.at_most(
            f"(engine - keys and values) / file, {each.slots} x {each.context} positions, {each.kv}",
            floors.MEMORY_RATIO,
            each.ratio,
        )
        for each in footprints
    ]
    if flat is not None:
        name = f"share of memory that 10,000 requests add ({flat.requests} measured)"
        out.append(floors.at_most(name, floors.RSS_GROWTH_SHARE, flat.growth_share))
    return out


def lines(footprints: Sequence[Footprint], flat: Flatness | None) -> list[str]:
    """What was found, in words."""
    out = [
        f"{each.slots} x {each.context} positions, {each.kv}: engine {each.engine_bytes / 1e6:.1f} MB ("
        f"{each.mapped_bytes / 1e6:.1f} mapped), of it keys and values {each.kv_bytes / 1e6:.1f}; the rest "
        f"is {each.ratio:.3f} of the file's {each.file_bytes / 1e6:.1f}; {each.peak_bytes / 1e6:.1f} at most"
        for each in footprints
    ]
    if flat is not None:
        out.append(
            f"{flat.requests} requests: server at {flat.resident_bytes[-1] / 1e6:.1f} MB, slope "
            f"{flat.bytes_per_request:.1f} [{flat.low:.1f}, {flat.high:.1f}] bytes a request"
        )
    return out


def markdown(command: str, footprints: Sequence[Footprint], flat: Flatness | None) -> str:
    """The section of RESULTS.md."""
    rows = [
        [
            f"{each.slots} x {each.context}, {each.kv}",
            f"{each.engine_bytes / 1e6:.1f}",
            f"{each.kv_bytes / 1e6:.1f}",
            f"{each.file_bytes / 1e6:.1f}",
            f"{each.ratio:.3f}",
            f"{each.peak_bytes / 1e6:.1f}",
        ]
        for each in footprints
    ]
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    head = [
        "slots x context",
        "engine MB",
        "keys and values MB",
        "file MB",
        "rest / file",
        "most ever MB",
    ]
    return "\n".join(
        [
            "## Memory",
            "",
            f"`{command}`, {stamp}. {machine.describe().cpu}.",
            "",
            table(head, rows),
            *(f"- {line}" for line in lines((), flat)),
            *(f"- {verdict_line(each)}" for each in verdicts(footprints, flat)),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, judge, print; the exit code."""
    out = bench_parser("memory", "Memory of engine and server.")
    out.add_argument(
        "--requests", type=whole(0), default=10_000, help="short ones, 0 for none (default: %(default)s)"
    )
    add_model(out, MODEL)
    options = out.parse_args(arguments)
    try:
        model = options.model or verify(MODEL)
        with tempfile.TemporaryDirectory(prefix="bench-memory-") as name:
            folder = Path(name)
            found = [
                footprint(model, slots, context, kv, folder)
                for slots, context in SHAPES
                for kv in ("f16", "int8", "q4")
            ]
            flat = flatness(model, options.requests, folder) if options.requests else None
    except AssayError as error:
        complain(error)
        return error.exit_code
    except (SideError, httpx.HTTPError, OSError) as error:
        complain(PrerequisiteError("the engine or the server could not be measured", str(error)))
        return PrerequisiteError.exit_code
    judged = verdicts(found, flat)
    for text in [*lines(found, flat), *(verdict_line(each) for each in judged)]:
        say(text)
    met = all(each.met for each in judged)
    if options.write:
        command = f"python -m bench.memory {' '.join(sys.argv[1:])}".strip()
        write_section("memory", markdown(command, found, flat))
    if options.json:
        print(
            json.dumps(
                {
                    "floors_met": met,
                    "floors": [asdict(each) for each in judged],
                    "footprints": [{**asdict(each), "ratio": each.ratio} for each in found],
                    "flatness": None if flat is None else {**asdict(flat), "growth_share": flat.growth_share},
                },
                allow_nan=False,
            )
        )
    return 0 if met else 5


if __name__ == "__main__":
    sys.exit(main())
