"""`python -m bench.engine`: the engine's decode and prefill speed, and the roof it stands under.

Contract: decode is 1 / median seconds of a step of one token at a context;
prefill is prompt tokens / seconds of one cold step with the last token's logits
(no HTTP, no sampling); both medians over repeats. The roof is measured beside
each figure, since a shared machine's bandwidth moves: seconds to read as many
bytes as a step reads (the weights once, and the context's keys and values),
with the same number of threads. `roof` is that time / the step's time.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.options import whole
from server import abi
from server.engine import Chunk, Engine

MODEL = Path(__file__).parents[1] / ".assay/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXTS = (0, 512, 2048)
PROMPTS = (128, 512, 2048)
DECODE_STEPS = 64
ROOF_REPEATS = 15


@dataclass(frozen=True)
class Decode:
    """Single-sequence decode at one context."""

    threads: int
    context: int  # tokens before the first decoded one
    tokens_per_s: float
    read_bytes: int  # a step's weights, keys and values
    roof_gb_per_s: float  # plain reads of as many bytes, measured beside it
    roof: float  # share of that bandwidth reached


@dataclass(frozen=True)
class Prefill:
    """One cold prompt."""

    threads: int
    prompt: int  # tokens
    tokens_per_s: float
    fastest_tokens_per_s: float


@dataclass(frozen=True)
class Figures:
    """Everything one run measured."""

    isa: str
    library_sha256: str
    repeats: int
    load_before: tuple[float, float, float]  # the machine's load averages
    load_after: tuple[float, float, float]
    load_s: float  # opening the model, library compiled before
    decode: tuple[Decode, ...]
    prefill: tuple[Prefill, ...]


def measure(model: Path, threads: Sequence[int], repeats: int, isa: str | None) -> Figures:
    """Runs every measurement; contexts beyond the model's are left out."""
    before = os.getloadavg()
    decode: list[Decode] = []
    prefill: list[Prefill] = []
    opened: list[float] = []
    for count in threads:
        start = time.perf_counter()
        with Engine(model, threads=count, slots=1, isa=isa) as engine:
            opened.append(time.perf_counter() - start)
            name, digest = engine.isa, engine.build.library_sha256
            engine.step([Chunk(0, 0, _tokens(engine, 64), "last")])  # touches every page once
            for context in CONTEXTS:
                if context + DECODE_STEPS <= engine.context:
                    decode.append(_decode(engine, context, repeats))
            for prompt in PROMPTS:
                if prompt <= engine.context:
                    prefill.append(_prefill(engine, prompt, repeats))
    return Figures(name, digest, repeats, before, os.getloadavg(), min(opened), tuple(decode), tuple(prefill))


def _tokens(engine: Engine, count: int) -> list[int]:
    return [(index * 7919 + 13) % engine.vocabulary for index in range(count)]


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _decode(engine: Engine, context: int, repeats: int) -> Decode:
    if context:
        engine.step([Chunk(0, 0, _tokens(engine, context), "none")])
    read_bytes = engine.weight_bytes + engine.kv_bytes_per_position * (context + DECODE_STEPS // 2)
    library = abi.load(engine.build.library)
    steps: list[float] = []
    roofs: list[float] = []
    for _ in range(repeats):
        roofs.append(library.read_seconds(read_bytes, engine.threads, ROOF_REPEATS))
        for index in range(DECODE_STEPS):
            chunk = Chunk(0, context + index, [index % engine.vocabulary], "last")
            steps.append(_seconds(partial(engine.step, [chunk])))
    step, roof = statistics.median(steps), statistics.median(roofs)
    return Decode(engine.threads, context, 1 / step, read_bytes, read_bytes / roof / 1e9, roof / step)


def _prefill(engine: Engine, prompt: int, repeats: int) -> Prefill:
    chunk = Chunk(0, 0, _tokens(engine, prompt), "last")
    seconds = [_seconds(partial(engine.step, [chunk])) for _ in range(repeats)]
    return Prefill(engine.threads, prompt, prompt / statistics.median(seconds), prompt / min(seconds))


def _print(figures: Figures) -> None:
    out = sys.stdout.write
    out(
        f"engine {figures.isa}, library {figures.library_sha256[:16]}, medians of {figures.repeats} repeats, "
    )
    out(f"load {figures.load_before[0]:.1f} before and {figures.load_after[0]:.1f} after; ")
    out(f"model opened in {figures.load_s:.2f} s\n")
    for decode in figures.decode:
        out(f"decode  {decode.threads} threads, context {decode.context:5}: ")
        out(f"{decode.tokens_per_s:7.1f} tok/s, {decode.roof:.0%} of {decode.roof_gb_per_s:.1f} GB/s\n")
    for prefill in figures.prefill:
        out(f"prefill {prefill.threads} threads, prompt  {prefill.prompt:5}: ")
        out(f"{prefill.tokens_per_s:7.1f} tok/s (fastest {prefill.fastest_tokens_per_s:.1f})\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; with --json one object is the last line of stdout."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description="The engine's speed.")
    parser.add_argument("model", type=Path, nargs="?", default=MODEL, help="a GGUF file")
    parser.add_argument("--threads", type=whole(1), nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=whole(1), default=5)
    parser.add_argument("--isa", help="avx512, avx2 or plain; the best of this CPU by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    figures = measure(options.model, options.threads, options.repeats, options.isa)
    _print(figures)
    if options.json:
        sys.stdout.write(json.dumps(asdict(figures), allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
