"""`python -m bench.gateway`: what a request costs on its way through the gateway.

Contract: a target that answers at once, a gateway with its journal on a real disk, and a client are a process
each; the client asks the target itself and through a lane, in ABBA pairs of so many requests, one at a time
and many at once. No engine answers at once: the milliseconds that are added are the figure, and the ratio is
the worst case of it. Replay is the same requests, answered from the journal by the gateway's next life.

Exit codes: 0 measured; 3 something is missing.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from assay.console import complain, say
from assay.errors import AssayError, PrerequisiteError
from assay.gateway import Gateway, Pool
from assay.run.endpoint import Endpoint
from assay.suite.target import Target
from bench import machine
from bench.machine import Machine
from bench.options import add_busy, bench_parser
from bench.paired import Comparison, abba, compare
from bench.peers import require_quiet
from bench.peers_text import comparison_text
from bench.results import write_section

START_S = 60.0
MANY = 64
MESSAGE = {"role": "assistant", "content": "word " * 200}
ANSWER = json.dumps(
    {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 200, "total_tokens": 207},
    }
).encode()
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(ANSWER),
    ANSWER,
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request of a connection as soon as it is whole, with the least that HTTP asks for."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(REPLY)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def serve_target(pipe: Connection) -> None:
    """The target's process: its address goes into the pipe; it ends with the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await asyncio.to_thread(_until_closed, pipe)
        server.close()

    asyncio.run(serve())


def serve_lane(pipe: Connection, target: str, journal: Path) -> None:
    """The gateway's process: its lane's address and key go into the pipe; it ends with the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def serve() -> None:
        pool = Pool(
            Target(name="instant", base_url=(target,), model="m", max_concurrency=MANY),
            [Endpoint(target, "m", None)],
        )
        async with Gateway(lambda kind, fields: None) as gateway:
            opened = gateway.open("bench", pool, journal)
            pipe.send((opened.lane.base_url, opened.lane.key.reveal()))
            await asyncio.to_thread(_until_closed, pipe)

    asyncio.run(serve())


def _until_closed(pipe: Connection) -> None:
    try:
        pipe.recv()
    except EOFError:
        return


class Process:
    """A process of the measurement, while it is entered; `told` is what it says first."""

    def __init__(self, serve: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=serve, args=(far, *arguments), daemon=True)
        self._far = far

    def __enter__(self) -> Process:
        """Start it, and wait for its first word."""
        self._process.start()
        self._far.close()
        if not self._pipe.poll(START_S):
            raise PrerequisiteError("a process of the measurement did not start")
        try:
            self.told = self._pipe.recv()
        except EOFError:
            raise PrerequisiteError("a process of the measurement ended at once") from None
        return self

    def __exit__(self, *exception: object) -> None:
        """Let it end."""
        self._pipe.close()
        self._process.join(START_S)


@dataclass(frozen=True)
class Figure:
    """What so many requests at once cost.

    Attributes:
        at_once: Requests in flight.
        comparison: Requests a second through the lane over those of the target itself.
        direct_per_s: Requests a second, median.
        lane_per_s: Requests a second, median.
        added_ms: Median over pairs of what the lane adds to the time of one request.
    """

    at_once: int
    comparison: Comparison
    direct_per_s: float
    lane_per_s: float
    added_ms: float


@dataclass(frozen=True)
class Report:
    """Everything that was measured."""

    taken: str
    command: str
    machine: Machine
    busy_before: float
    wall_s: float
    figures: tuple[Figure, ...]
    replay_per_s: float


class Client:
    """A client of the target or of a lane; each request is another one, each worker has its connection."""

    def __init__(self, base_url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        context = httpx.create_ssl_context(trust_env=False)
        self._clients = [
            httpx.AsyncClient(base_url=base_url, headers=headers, verify=context, timeout=60, trust_env=False)
            for _ in range(MANY)
        ]

    async def ask(self, first: int, count: int, at_once: int) -> float:
        """Ask so many requests, so many at once; the seconds that took."""
        numbers = iter(range(first, first + count))

        async def work(client: httpx.AsyncClient) -> None:
            for number in numbers:
                message = {"role": "user", "content": f"question {number} " * 20}
                answer = await client.post("/chat/completions", json={"messages": [message]})
                if answer.content != ANSWER:
                    raise PrerequisiteError("the target could not be measured", f"{answer.status_code}")

        begin = time.perf_counter()
        await asyncio.gather(*(work(client) for client in self._clients[:at_once]))
        return time.perf_counter() - begin

    async def close(self) -> None:
        """Close its connections."""
        await asyncio.gather(*(client.aclose() for client in self._clients))


async def figure(target: Client, lane: Client, at_once: int, pairs: int, count: int, first: int) -> Figure:
    """Measure pairs at one number of requests in flight."""
    direct: list[float] = []
    through: list[float] = []

    async def one(client: Client, seconds: list[float]) -> None:
        nonlocal first
        seconds.append(await client.ask(first, count, at_once))
        first += count

    await target.ask(first, at_once, at_once)
    await lane.ask(first + count * pairs * 2, at_once, at_once)
    for lane_first in abba(pairs):
        order = [(lane, through), (target, direct)]
        for client, seconds in order if lane_first else reversed(order):
            await one(client, seconds)
    return Figure(
        at_once=at_once,
        comparison=compare([count / each for each in through], [count / each for each in direct], 1),
        direct_per_s=statistics.median(count / each for each in direct),
        lane_per_s=statistics.median(count / each for each in through),
        added_ms=1000
        * statistics.median((a - b) / count * at_once for a, b in zip(through, direct, strict=True)),
    )


async def measure(pairs: int, count: int, journal: Path, target: str) -> tuple[list[Figure], float]:
    """Measure it all: the figures, and how many requests a second are replayed."""
    figures = []
    first = 0
    with Process(serve_lane, target, journal) as gateway:
        lane, direct = Client(*gateway.told), Client(target, "none")
        for at_once in (1, MANY):
            figures.append(await figure(direct, lane, at_once, pairs, count, first))
            first += 2 * count * pairs + 2 * MANY
        await lane.ask(first, count, MANY)
        await lane.close()
        await direct.close()
    with Process(serve_lane, target, journal) as gateway:
        lane = Client(*gateway.told)
        replay = count / await lane.ask(first, count, MANY)
        await lane.close()
    return figures, replay


def lines(report: Report) -> list[str]:
    """The report in words."""
    out = [
        f"{each.at_once} at once: {each.lane_per_s:.0f} requests/s through the lane, "
        f"{each.direct_per_s:.0f} at the target itself = {comparison_text(each.comparison)}; "
        f"{each.added_ms:.2f} ms added to each"
        for each in report.figures
    ]
    return [*out, f"replayed, {MANY} at once: {report.replay_per_s:.0f} requests/s"]


def markdown(report: Report) -> str:
    """The section of RESULTS.md."""
    return "\n".join(
        [
            "## What the gateway costs",
            "",
            f"`{report.command}`, {report.taken}, {report.wall_s:.0f} s. {report.machine.cpu}, "
            f"{report.machine.cores} cores; busy before {report.busy_before:.0%}. The target answers at "
            "once; the journal is on the disk before each answer. Ratios are medians of ABBA pairs with "
            "95 % intervals.",
            "",
            *(f"- {line}" for line in lines(report)),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    out = bench_parser("gateway", "What a request costs on its way through the gateway.")
    out.add_argument("--quick", action="store_true", help="fewer pairs")
    add_busy(out)
    out.add_argument("--journal", type=Path, help="folder of the journal (default: the temporary one)")
    options = out.parse_args(arguments)
    begin = time.monotonic()
    try:
        busy = require_quiet(options.busy)
        with tempfile.TemporaryDirectory(prefix="bench-gateway-", dir=options.journal) as name:
            pairs, count = (4, 128) if options.quick else (14, 512)
            with Process(serve_target) as target:
                figures, replay = asyncio.run(measure(pairs, count, Path(name) / "bench.jsonl", target.told))
    except AssayError as error:
        complain(error)
        return error.exit_code
    except (httpx.HTTPError, OSError) as error:
        complain(PrerequisiteError("the gateway could not be measured", str(error)))
        return PrerequisiteError.exit_code
    report = Report(
        taken=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=f"python -m bench.gateway {' '.join(sys.argv[1:])}".strip(),
        machine=machine.describe(),
        busy_before=busy,
        wall_s=time.monotonic() - begin,
        figures=tuple(figures),
        replay_per_s=replay,
    )
    for line in lines(report):
        say(line)
    if options.write:
        write_section("gateway", markdown(report))
    if options.json:
        print(json.dumps(asdict(report), allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
