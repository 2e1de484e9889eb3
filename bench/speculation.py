"""`python -m bench.speculation`: decoding with guesses beside plain decoding, as a mode of its own.

Contract: two real servers of one model on loopback, one plain and one that guesses, of which one is asked at
a time; pairs in ABBA order. Each workload is first answered by both, and the texts must be the same bytes:
speed is told of nothing else. What guesses bring depends on the text, so each workload is told apart, with
the share of guesses that were chosen. A figure with guesses never stands for plain decoding. What a small
model can gain or cost at most is told with the models of `bench.short_model`.

Exit codes: 0 measured; 3 something is missing or the machine is busy; 5 a text with guesses was another one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from assay.console import complain, say
from assay.errors import AssayError, PrerequisiteError, VerificationError
from assay.models import pins, verify
from bench import machine
from bench.http_stream import StreamError, streams
from bench.options import add_busy, add_model, bench_parser, whole
from bench.paired import Comparison, abba, compare
from bench.peers import MODEL, require_quiet
from bench.peers_text import comparison_text
from bench.results import write_section
from bench.serving import NAME, SETTLE_S, server

DOCUMENTS = Path(__file__).parent / "documents"
NGRAM = "ngram"
ASK_S = 300.0
OPENING = 600  # characters of a document
BOUNDS = (
    "Of an idle model of `bench.short_model` its short one guesses every token, which is the most that a "
    "small model gains at this cost; of the whole one next to none, which is the most that it costs."
)


@dataclass(frozen=True)
class Workload:
    """What is asked.

    Attributes:
        name: Of the workload.
        prompt: Its text.
    """

    name: str
    prompt: str


@dataclass(frozen=True)
class Result:
    """One workload in both modes.

    Attributes:
        workload: Its name.
        plain: Median tokens a second without guesses.
        guessing: With them.
        ratio: Guessing over plain, paired.
        drafted: Tokens that were guessed, over all its answers.
        accepted: Of these, chosen.
    """

    workload: str
    plain: float
    guessing: float
    ratio: Comparison
    drafted: int
    accepted: int


@dataclass(frozen=True)
class Report:
    """One run."""

    taken: str
    command: str
    machine: machine.Machine
    busy_before: float
    model: str
    guesser: str
    draft_tokens: int
    tokens: int
    results: tuple[Result, ...]


def workloads() -> tuple[Workload, ...]:
    """A text that comes again, a list that goes on, and prose that does not repeat itself."""
    tides, numbers, letter = (
        (DOCUMENTS / f"{name}.txt").read_text("utf-8")[:OPENING] for name in ("tides", "list", "letter")
    )
    return (
        Workload("a document copied", f"{tides}\n\nThe same text again:\n\n{tides[:120]}"),
        Workload("a list continued", numbers),
        Workload("a letter continued", letter),
    )


def body(prompt: str, tokens: int) -> dict[str, object]:
    """A greedy completion of so many tokens, whatever they are."""
    return {"model": NAME, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def said(port: int, asked: Mapping[str, object]) -> str:
    """The text of a completion."""
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=asked, timeout=ASK_S)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["text"])


def guesses(port: int) -> tuple[int, int]:
    """How many tokens a server has guessed, and how many of these were chosen."""
    lines = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=ASK_S).text.splitlines()
    values = dict(line.split() for line in lines if line.startswith("assay_") and "{" not in line)
    drafted, accepted = (int(float(values[f"assay_{word}_tokens_total"])) for word in ("drafted", "accepted"))
    return drafted, accepted


def measure_one(workload: Workload, plain: int, guessing: int, tokens: int, pairs: int, seed: int) -> Result:
    """Measure a workload at two ports.

    Raises:
        VerificationError: the two say something else.
    """
    asked = body(workload.prompt, tokens)
    if said(plain, asked) != said(guessing, asked):
        raise VerificationError(f"{workload.name}: the text with guesses is another one", "", "")
    before = guesses(guessing)
    speeds: dict[int, list[float]] = {plain: [], guessing: []}
    for first in abba(pairs):
        for port in (guessing, plain) if first else (plain, guessing):
            time.sleep(SETTLE_S)
            speeds[port].append(streams(port, [asked])[0].tokens_per_s)
    after = guesses(guessing)
    return Result(
        workload.name,
        statistics.median(speeds[plain]),
        statistics.median(speeds[guessing]),
        compare(speeds[guessing], speeds[plain], seed),
        after[0] - before[0],
        after[1] - before[1],
    )


def measure(options: argparse.Namespace, model: Path, busy: float) -> Report:
    """Measure every workload."""
    mode = ("--speculate", options.speculate, "--draft-tokens", str(options.draft_tokens))
    with tempfile.TemporaryDirectory(prefix="bench-speculation-") as name, ExitStack() as stack:
        ports = []
        for index, extra in enumerate(((), mode)):
            folder = Path(name) / str(index)
            folder.mkdir()
            port, _ = stack.enter_context(server(model, folder, options.threads, options.isa, extra))
            ports.append(port)
        results = tuple(
            measure_one(each, ports[0], ports[1], options.tokens, options.pairs, seed)
            for seed, each in enumerate(workloads())
        )
    return Report(
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        f"python -m bench.speculation {' '.join(sys.argv[1:])}".strip(),
        machine.describe(),
        busy,
        model.name,
        Path(options.speculate).name,
        options.draft_tokens,
        options.tokens,
        results,
    )


def line(result: Result) -> str:
    """A workload in words."""
    share = f"{result.accepted / result.drafted:.0%}" if result.drafted else "none"
    return (
        f"{result.workload}: {result.guessing:.0f} tok/s with guesses, {result.plain:.0f} plain = "
        f"{comparison_text(result.ratio)}; {result.drafted} guessed, {share} chosen; the same bytes"
    )


def markdown(report: Report) -> str:
    """The section of RESULTS.md."""
    return "\n".join(
        [
            "## Speculation, a mode of its own"
            + ("" if report.guesser == NGRAM else ": a small model that guesses"),
            "",
            f"`{report.command}`, {report.taken}. {report.machine.cpu}, {report.machine.cores} cores; busy "
            f"before {report.busy_before:.0%}. Model {report.model}, guesser {report.guesser}, at most "
            f"{report.draft_tokens} tokens a step, answers of {report.tokens}. Ratios are medians of ABBA "
            f"pairs with 95 % intervals.",
            "",
            *(() if report.guesser == NGRAM else (BOUNDS, "")),
            *(f"- {line(each)}" for each in report.results),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    out = bench_parser("speculation", "Decoding with guesses beside plain decoding.")
    out.add_argument(
        "--speculate", default=NGRAM, help="ngram, or a small model, by name or path (default: %(default)s)"
    )
    out.add_argument("--draft-tokens", type=whole(1), default=4, help="guessed a step (default: %(default)s)")
    add_busy(out)
    add_model(out, MODEL)
    out.add_argument("--threads", type=whole(1), default=min(2, os.cpu_count() or 1))
    out.add_argument("--isa", help="avx512, avx2 or plain (default: the best here)")
    out.add_argument("--pairs", type=whole(1), default=8, help="of every ratio (default: %(default)s)")
    out.add_argument("--tokens", type=whole(2), default=128, help="of an answer (default: %(default)s)")
    options = out.parse_args(arguments)
    try:
        if options.speculate in pins():
            options.speculate = str(verify(options.speculate))
        report = measure(options, options.model or verify(MODEL), require_quiet(options.busy))
    except AssayError as error:
        complain(error)
        return error.exit_code
    except (StreamError, OSError, httpx.HTTPError) as error:
        complain(PrerequisiteError("a server could not be measured", str(error)))
        return PrerequisiteError.exit_code
    for each in report.results:
        say(line(each))
    if options.write:
        name = "speculation" if report.guesser == NGRAM else "speculation-model"
        write_section(name, markdown(report))
    if options.json:
        print(json.dumps(asdict(report), allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
