"""`python -m bench.serving`: eight sequences over one, and what HTTP costs beside the engine itself.

Contract: one run holds the engine in a process of its own and the real server in another, on loopback, with
the same threads; whichever is not asked sleeps. Pairs are in ABBA order. Decode is at a context of 128: the
engine's batch is steps of eight tokens, HTTP's is eight streams whose prompts the server has read before,
so that both measure decode. TTFT is of cold prompts (`cache_prompt` false), each with fresh tokens, and is
compared with the engine's own prefill of as many: the difference is what HTTP, queue, sampling and text
cost.

Exit codes: 0 every floor is met; 3 something is missing or the machine is busy; 5 a floor is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from assay.console import complain, say
from assay.errors import AssayError, PrerequisiteError
from assay.models import verify
from bench import floors, machine
from bench.floors import Verdict
from bench.http_stream import Stream, StreamError, streams, together
from bench.options import add_busy, add_model, bench_parser, whole
from bench.paired import Comparison, Interval, abba, compare
from bench.peers import MODEL, OPEN_S, open_side, require_quiet
from bench.peers_text import comparison_text, verdict_line
from bench.results import write_section
from bench.sides.protocol import ROOT, Side, SideError, token_ids

CONTEXT = 128
BATCH = 8
SETTLE_S = 0.05
QUESTION_S = 120.0
READY_S = 300.0
NAME = "bench"


@dataclass(frozen=True)
class Difference:
    """A paired difference in milliseconds: HTTP's TTFT less the engine's prefill.

    Attributes:
        prompt: Tokens.
        pairs: How many.
        median_ms: Of the differences.
        low_ms: Lower end of its 95 % BCa interval.
        high_ms: Upper end.
        engine_ms: The engine's median.
    """

    prompt: int
    pairs: int
    median_ms: float
    low_ms: float
    high_ms: float
    engine_ms: float


@dataclass(frozen=True)
class Report:
    """One run.

    Attributes:
        batch: Eight sequences over one in the engine.
        batch_http: Eight streams over one through HTTP.
        http: One stream over the engine itself, decode.
        ttft: What HTTP adds to the first token, by prompt.
        speeds: Medians, tokens a second.
    """

    taken: str
    command: str
    machine: machine.Machine
    busy_before: float
    threads: int
    isa: str
    wall_s: float
    batch: Comparison
    batch_http: Comparison
    http: Comparison
    ttft: tuple[Difference, ...]
    speeds: Mapping[str, float]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Every floor."""
        return (
            floors.at_least(
                "8 sequences over 1, engine", floors.BATCH_RATIO, self.batch.ratio, _low(self.batch.bootstrap)
            ),
            floors.at_least(
                "8 streams over 1, HTTP",
                floors.BATCH_HTTP_RATIO,
                self.batch_http.ratio,
                _low(self.batch_http.bootstrap),
            ),
            floors.at_least(
                "1 stream over the engine itself",
                1 - floors.HTTP_LOSS,
                self.http.ratio,
                _low(self.http.bootstrap),
            ),
            *(
                floors.at_most(
                    f"ms added to the first token of a prompt of {each.prompt}",
                    floors.TTFT_OVERHEAD_MS,
                    each.median_ms,
                    each.high_ms,
                )
                for each in self.ttft
            ),
        )


def _low(interval: Interval) -> float | None:
    return interval.low


@contextmanager
def server(
    model: Path, folder: Path, threads: int, isa: str | None, extra: Sequence[str] = ()
) -> Iterator[tuple[int, int]]:
    """The real server on a free port until the block ends: its port and process id.

    Args:
        model: What is served.
        folder: For its log and ready file.
        threads: Of the engine.
        isa: None for the best here.
        extra: Words of its command beside those.

    Raises:
        PrerequisiteError: it did not get ready; its log's end is in the message.
    """
    ready, log = folder / "ready.json", folder / "server.log"
    words = ["--port", "0", "--ready-file", str(ready), "--threads", str(threads), "--slots", str(BATCH)]
    words += ["--context", "1024", "--name", NAME, *(("--isa", isa) if isa else ()), *extra]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "server", str(model), *words], cwd=ROOT, stdout=stream, stderr=stream
        )
    try:
        end = time.monotonic() + READY_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise PrerequisiteError("the server did not get ready", log.read_text("utf-8")[-2000:])
            time.sleep(0.05)
        yield int(json.loads(ready.read_text("utf-8"))["port"]), process.pid
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


class Bench:
    """The engine and the server, measured in turn."""

    def __init__(self, engine: Side, port: int, vocabulary: int, tokens: int, seed: int) -> None:
        """Take over both; `tokens` are decoded in one measurement."""
        self._engine = engine
        self._port = port
        self._vocabulary = vocabulary
        self._tokens = tokens
        self._seed = seed
        self._prompts = [token_ids(CONTEXT, seed + 1000 + index, vocabulary) for index in range(BATCH)]

    def engine(self, batch: int) -> float:
        """Tokens a second of `batch` sequences in the engine."""
        time.sleep(SETTLE_S)
        self._seed += 1
        answer = self._engine.ask(
            "decode", QUESTION_S, context=CONTEXT, tokens=self._tokens, seed=self._seed, batch=batch
        )
        return batch * self._tokens / float(answer["seconds"])

    def http(self, count: int) -> float:
        """Tokens a second of `count` streams through HTTP."""
        time.sleep(SETTLE_S)
        found = self._streams(self._prompts[:count], cached=True, tokens=self._tokens + 1)
        return found[0].tokens_per_s if count == 1 else together(found)

    def first_token(self, prompt: int) -> float:
        """Seconds to the first token of a cold prompt through HTTP."""
        time.sleep(SETTLE_S)
        self._seed += 1
        ids = token_ids(prompt, self._seed, self._vocabulary)
        return self._streams([ids], cached=False, tokens=1)[0].ttft_s

    def prefill(self, prompt: int) -> float:
        """Seconds of as long a cold prompt in the engine."""
        time.sleep(SETTLE_S)
        self._seed += 1
        return float(self._engine.ask("prefill", QUESTION_S, tokens=prompt, seed=self._seed)["seconds"])

    def _streams(self, prompts: Sequence[Sequence[int]], *, cached: bool, tokens: int) -> list[Stream]:
        bodies = [
            {
                "model": NAME,
                "prompt": list(ids),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": cached,
            }
            for ids in prompts
        ]
        found = streams(self._port, bodies)
        if any(stream.tokens != tokens for stream in found):
            raise StreamError(f"{[stream.tokens for stream in found]} tokens, {tokens} asked for")
        return found


def pairs(
    count: int, first: Callable[[], float], second: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Measure both in ABBA order."""
    one: list[float] = []
    other: list[float] = []
    for first_goes in abba(count):
        if first_goes:
            one.append(first())
            other.append(second())
        else:
            other.append(second())
            one.append(first())
    return one, other


def difference(prompt: int, http: Sequence[float], engine: Sequence[float], seed: int) -> Difference:
    """What HTTP adds, from paired seconds."""
    added = 1000 * (np.array(http) - np.array(engine))
    interval = stats.bootstrap(
        (added,), np.median, n_resamples=10_000, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Difference(
        prompt,
        len(added),
        float(np.median(added)),
        float(interval.low),
        float(interval.high),
        1000 * statistics.median(engine),
    )


def measure(options: argparse.Namespace, model: Path, busy: float) -> Report:
    """Measure everything."""
    begin = time.monotonic()
    seed = int(time.time()) % (1 << 30)
    few = options.pairs or (6 if options.quick else 14)
    tokens = options.tokens or (64 if options.quick else 128)
    with tempfile.TemporaryDirectory(prefix="bench-serving-") as name, ExitStack() as stack:
        folder = Path(name)
        side = open_side("assay", folder, stack)
        described = side.ask(
            "open",
            OPEN_S,
            model=str(model),
            threads=options.threads,
            context=1024,
            slots=BATCH,
            isa=options.isa,
        )
        port, _ = stack.enter_context(server(model, folder, options.threads, options.isa))
        bench = Bench(side, port, int(described["vocabulary"]), tokens, seed)
        for warm in (bench.http, bench.engine):  # pages, and the prompts of HTTP into its cache
            warm(BATCH)
            warm(1)
        eight, one = pairs(few, lambda: bench.engine(BATCH), lambda: bench.engine(1))
        eight_http, one_http = pairs(few, lambda: bench.http(BATCH), lambda: bench.http(1))
        http, engine = pairs(few, lambda: bench.http(1), lambda: bench.engine(1))
        ttft = []
        for prompt in (16, CONTEXT):
            cold, bare = partial(bench.first_token, prompt), partial(bench.prefill, prompt)
            over, under = pairs(2 * few, cold, bare)
            ttft.append(difference(prompt, over, under, seed))
    return Report(
        taken=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=f"python -m bench.serving {' '.join(sys.argv[1:])}".strip(),
        machine=machine.describe(),
        busy_before=busy,
        threads=options.threads,
        isa=str(described["isa"]),
        wall_s=time.monotonic() - begin,
        batch=compare(eight, one, seed),
        batch_http=compare(eight_http, one_http, seed),
        http=compare(http, engine, seed),
        ttft=tuple(ttft),
        speeds={
            "engine_1": statistics.median([*one, *engine]),
            "engine_8": statistics.median(eight),
            "http_1": statistics.median([*one_http, *http]),
            "http_8": statistics.median(eight_http),
        },
    )


def lines(report: Report) -> list[str]:
    """The report in words."""
    speeds = report.speeds
    out = [
        f"8 sequences over 1 in the engine, context {CONTEXT}: {speeds['engine_8']:.0f} / "
        f"{speeds['engine_1']:.0f} tok/s = {comparison_text(report.batch)}",
        f"8 streams over 1 through HTTP: {speeds['http_8']:.0f} / {speeds['http_1']:.0f} tok/s = "
        f"{comparison_text(report.batch_http)}",
        f"1 stream through HTTP over the engine itself: {comparison_text(report.http)}",
    ]
    out += [
        f"first token of a cold prompt of {each.prompt}: HTTP adds {each.median_ms:.2f} ms "
        f"[{each.low_ms:.2f}, {each.high_ms:.2f}] to the engine's {each.engine_ms:.1f} ms, {each.pairs} pairs"
        for each in report.ttft
    ]
    return out


def markdown(report: Report) -> str:
    """The section of RESULTS.md."""
    return "\n".join(
        [
            "## Eight sequences, and HTTP",
            "",
            f"`{report.command}`, {report.taken}, {report.wall_s:.0f} s. {report.machine.cpu}, "
            f"{report.machine.cores} cores, {report.threads} engine threads, {report.isa}; busy before "
            f"{report.busy_before:.0%}. Ratios are medians of ABBA pairs with 95 % intervals.",
            "",
            *(f"- {line}" for line in lines(report)),
            *(f"- {verdict_line(each)}" for each in report.verdicts),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, judge, print; the exit code."""
    out = bench_parser("serving", "Eight sequences over one, and what HTTP costs.")
    out.add_argument("--quick", action="store_true", help="fewer pairs")
    add_busy(out)
    add_model(out, MODEL)
    out.add_argument("--threads", type=whole(1), default=min(2, os.cpu_count() or 1))
    out.add_argument("--isa", help="avx512, avx2 or plain (default: the best here)")
    out.add_argument("--pairs", type=whole(1), help="of every ratio")
    out.add_argument("--tokens", type=whole(2), help="decoded in one measurement")
    options = out.parse_args(arguments)
    try:
        model = options.model or verify(MODEL)
        report = measure(options, model, require_quiet(options.busy))
    except AssayError as error:
        complain(error)
        return error.exit_code
    except (SideError, StreamError, OSError) as error:
        complain(PrerequisiteError("the engine or the server could not be measured", str(error)))
        return PrerequisiteError.exit_code
    for text in [*lines(report), *(verdict_line(each) for each in report.verdicts)]:
        say(text)
    met = all(each.met for each in report.verdicts)
    if options.write:
        write_section("serving", markdown(report))
    if options.json:
        verdicts = [asdict(each) for each in report.verdicts]
        print(json.dumps({"floors": verdicts, "floors_met": met, **asdict(report)}, allow_nan=False))
    return 0 if met else 5


if __name__ == "__main__":
    sys.exit(main())
