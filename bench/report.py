"""`tests/.venv/bin/python -m bench.report`: how large a report is, and how soon a browser shows it.

Contract: rows are made here (no run has 20,000 at hand), with words in a natural distribution, so that they
compress as text does. The report is written by the command's own code and opened from the disk in Debian's
Chromium, each time in a new profile: first paint and first contentful paint as the browser tells them, then
the moment when the list, the charts and the keys are there, the time that one key press needs to show a
sample, and the page's heap.

Exit codes: 0 measured; 3 something is missing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import complain, say, step
from assay.errors import AssayError, PrerequisiteError
from assay.record.sample import Sample, Seconds
from assay.record.statistics import Bounds
from assay.report.write import write_report
from assay.view.view import Benchmark, Exchange, Fact, Kind, Message, Part
from bench import machine
from bench.machine import Machine
from bench.options import bench_parser, whole
from bench.results import write_section

FAMILIES = 8
WORDS = 6000
LETTERS = list("etaoinshrdlucmfw")
LOADS = 5
# Notes the moment when the page says that it is ready, by the page's own clock.
WATCH = """new MutationObserver(() => {
  if (document.documentElement?.dataset.ready === undefined) return;
  window.readyAt ??= performance.now();
}).observe(document, { attributes: true, subtree: true });"""
PAINTS = (
    """() => Object.fromEntries(performance.getEntriesByType("paint").map((at) => [at.name, at.startTime]))"""
)
OPEN = """async () => {
  const begin = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
  while (!document.querySelector("#sample h3")) await new Promise(requestAnimationFrame);
  return performance.now() - begin;
}"""


@dataclass(frozen=True)
class Loaded:
    """One opening of the report, in milliseconds from its beginning, and the heap in MiB."""

    first_paint_ms: float
    contentful_paint_ms: float
    ready_ms: float
    sample_ms: float
    heap_mib: float


@dataclass(frozen=True)
class Report:
    """Everything that was measured; `cut_at` is None where every text is whole."""

    taken: str
    command: str
    machine: Machine
    browser: str
    samples: int
    characters: int
    write_s: float
    size_bytes: int
    cut_at: int | None
    loads: tuple[Loaded, ...]


class MadeView:
    """A view over rows that are made while they are read; see `assay.view.view.View`."""

    kind: Kind = "profile"
    run = Path("made")
    name = "made"
    description = "rows made for a measurement"
    status = "done"
    started: str | None = None
    ended: str | None = None
    model = "none"
    server: str | None = None

    def __init__(self, count: int, characters: int) -> None:
        self._count = count
        self._characters = characters

    def facts(self) -> tuple[Fact, ...]:
        """See `View`."""
        return ()

    def benchmarks(self) -> tuple[Benchmark, ...]:
        """See `View`."""
        return tuple(
            Benchmark(
                name=f"made/family-{number}",
                entry="made",
                family=f"family-{number}",
                metric=None,
                binary=True,
                score=0.5,
                bounds=Bounds(low=0.45, high=0.55),
                confidence=0.95,
                baseline=None,
                counts={"planned": self._count // FAMILIES, "scored": self._count // FAMILIES},
                conditions={},
            )
            for number in range(FAMILIES)
        )

    def samples(self) -> Iterator[Sample]:
        """See `View`."""
        return (sample for sample, _ in self.exchanges())

    def exchanges(self) -> Iterator[tuple[Sample, Exchange | None]]:
        """See `View`."""
        chance = np.random.default_rng(1)
        words = np.array(["".join(chance.choice(LETTERS, chance.integers(2, 10))) for _ in range(WORDS)])
        # Zipf's law: the n-th word is as frequent as 1/n.
        totals = np.cumsum(1 / np.arange(1, WORDS + 1))
        clock = [0.0] * 32
        for number in range(self._count):
            yield made(number, chance, words, totals / totals[-1], self._characters, clock)

    def exchange(self, sample: Sample) -> Exchange | None:
        """See `View`."""
        return None

    def summary(self) -> Mapping[str, Any]:
        """See `View`."""
        return {}


def made(
    number: int,
    chance: np.random.Generator,
    words: np.ndarray,
    totals: np.ndarray,
    characters: int,
    clock: list[float],
) -> tuple[Sample, Exchange]:
    """One row: a fifth of its characters are the question, three fifths thinking, a fifth the answer."""

    def text(length: int) -> str:
        return " ".join(words[np.searchsorted(totals, chance.random(max(1, length // 6)))])

    def digest(of: str) -> str:
        return hashlib.sha256(of.encode()).hexdigest()

    question, answer = text(characters // 5), text(characters // 5)
    tokens = int(chance.lognormal(6, 0.8)) + 1
    seconds = tokens / 100
    lane = clock.index(min(clock))
    started, clock[lane] = clock[lane], clock[lane] + seconds
    reward = float(number % 2)
    sample = Sample(
        entry="made",
        task_key=f"task/{number}",
        rollout=0,
        seed=None,
        family=f"family-{number % FAMILIES}",
        cluster=digest(question),
        prompt_digest=digest(question),
        answer_digest=digest(answer),
        output_digest=digest(answer),
        reward=reward,
        rewards={"right": reward},
        status="scored",
        error=None,
        empty=False,
        finish_reason="stop",
        stop_condition=None,
        prompt_tokens=characters // 20,
        completion_tokens=tokens,
        turns=1,
        attempts=1,
        seconds=Seconds(agent_s=seconds, total_s=seconds),
        record="made/traces.jsonl",
        line=number + 1,
    )
    messages = (Message("user", question), Message("assistant", answer, text(characters * 3 // 5)))
    parts = (Part("right", reward, 1.0),)
    return sample, Exchange(messages, "42", parts, None, None, started, {"model": seconds})


def load(path: Path) -> tuple[str, list[Loaded]]:
    """Open the report some times; the browser's version, and what each opening took.

    Raises:
        PrerequisiteError: there is no Chromium, or nothing that drives it.
    """
    program = shutil.which("chromium")
    if program is None:
        raise PrerequisiteError("chromium is not here", "", "install it (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        again = "eval/scripts/setup tests; tests/.venv/bin/python -m bench.report"
        raise PrerequisiteError("this environment cannot drive a browser", str(error), again) from error
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        for _ in range(LOADS):
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            context.add_init_script(WATCH)
            page = context.new_page()
            page.goto(path.as_uri(), wait_until="commit")
            page.wait_for_selector(":root[data-ready]", state="attached", timeout=120_000)
            paints = page.evaluate(PAINTS)
            ready = page.evaluate("window.readyAt")
            sample = page.evaluate(OPEN)
            heap = page.evaluate("performance.memory.usedJSHeapSize") / (1 << 20)
            found.append(Loaded(paints["first-paint"], paints["first-contentful-paint"], ready, sample, heap))
            context.close()
        version = browser.version
        browser.close()
    return version, found


def lines(report: Report) -> list[str]:
    """The report in words."""
    cut = f"long texts cut to {report.cut_at:,} characters" if report.cut_at else "every text whole"

    def told(name: str) -> str:
        values = [getattr(each, name) for each in report.loads]
        return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"

    return [
        f"{report.samples:,} samples of {report.characters:,} characters: {report.size_bytes / 1e6:.1f} MB, "
        f"{cut}, written in {report.write_s:.1f} s",
        f"first paint after {told('first_paint_ms')} ms, first contentful paint "
        f"{told('contentful_paint_ms')} ms, list and charts {told('ready_ms')} ms; a sample opens in "
        f"{told('sample_ms')} ms; heap {told('heap_mib')} MiB (medians of {len(report.loads)} openings)",
    ]


def markdown(reports: Sequence[Report]) -> str:
    """The section of RESULTS.md."""
    first = reports[0]
    head = (
        f"`{first.command}`, {first.taken}. {first.machine.cpu}, {first.machine.cores} cores; Chromium "
        f"{first.browser}, from the disk, a new profile each time."
    )
    return "\n".join(["## Reports", "", head, "", *(f"- {line}" for each in reports for line in lines(each))])


def measure(samples: int, characters: int) -> Report:
    """Write a report of made rows and open it."""
    with tempfile.TemporaryDirectory(prefix="bench-report-") as folder:
        path = Path(folder) / "report.html"
        begin = time.monotonic()
        with step(f"{samples:,} samples of {characters:,} characters"):
            written = write_report([MadeView(samples, characters)], path)
        seconds = time.monotonic() - begin
        browser, loads = load(path)
    return Report(
        taken=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=f"python -m bench.report {' '.join(sys.argv[1:])}".strip(),
        machine=machine.describe(),
        browser=browser,
        samples=samples,
        characters=characters,
        write_s=seconds,
        size_bytes=written.size_bytes,
        cut_at=written.cut_at,
        loads=tuple(loads),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    out = bench_parser("report", "How large a report is, and how soon it is shown.")
    out.add_argument("--samples", type=whole(1), default=20_000, help="rows (default: %(default)s)")
    out.add_argument(
        "--characters",
        type=whole(1),
        nargs="+",
        default=[2_000, 10_000],
        help="of each sample; one measurement for each (default: 2000 10000)",
    )
    options = out.parse_args(arguments)
    try:
        reports = [measure(options.samples, characters) for characters in options.characters]
    except AssayError as error:
        complain(error)
        return error.exit_code
    for report in reports:
        for line in lines(report):
            say(line)
    if options.write:
        write_section("report", markdown(reports))
    if options.json:
        print(json.dumps([asdict(report) for report in reports], allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
