"""`python -m bench.depth`: how far the engine is from exact arithmetic as a context grows, by form of KV.

Contract: one sequence of random tokens through a small random `qwen35` in full precision
(`bench.depth_model`), so that what differs is how keys and values are kept, and the engine's own order of
sums. Every position is compared with the reference (`bench.reference`) over the reference's 64 likeliest of
256 ids and a rest bucket; KL is told by depth, where an error that grew would show. The last positions are
also decoded one by one, and have to be the same bytes as when they were read as a prompt.

Exit codes: 0 every form is within its bound (`bench.floors.DEPTH_KL`) at every depth; 3 something is missing;
5 one is not, or decoding differs from reading.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from assay.console import complain, say
from assay.digest import sha256_file
from assay.errors import AssayError, PrerequisiteError
from assay.paths import CACHE, owned_directory
from bench import floors, machine
from bench.divergence import Floats, Ids, kl_divergence, log_softmax, top_ids
from bench.options import bench_parser, whole
from bench.peers import OPEN_S, open_side
from bench.results import table, write_section
from bench.sides.protocol import Side as Child
from bench.sides.protocol import SideError, token_ids

POSITIONS = 32_768
IDS = 64
SEED = 32
BORDERS = (0, 1024, 4096, 8192, 16_384, 24_576, 32_768)
FEWEST = 64  # that a side reads before it is asked
DECODED = 8  # of the last positions
LOGITS_S = 3600.0


@dataclass(frozen=True)
class Depth:
    """One form of keys and values over one range of positions.

    Attributes:
        kv: The form. isa: Of the engine. first, end: The positions. kl, se: Mean KL to exact
        arithmetic, nats a position, and its standard error. worst: The largest of a position.
        same_top: Share of positions with the same likeliest token.
    """

    kv: str
    isa: str
    first: int
    end: int
    kl: float
    se: float
    worst: float
    same_top: float


def exact(model: Path, tokens: Sequence[int]) -> tuple[Floats, Ids]:
    """The reference's log-probabilities of its likeliest ids, and the ids; kept by digest of its inputs.

    Raises:
        PrerequisiteError: the reader of the reference is not installed here.
    """
    names = ("reference.py", "reference_delta.py")
    sources = [Path(__file__).with_name(name).read_bytes() for name in names]
    key = hashlib.sha256(repr((sha256_file(model), tuple(tokens), IDS, sources)).encode()).hexdigest()[:32]
    kept = owned_directory(CACHE) / f"depth-{key}.npz"
    if not kept.exists():
        from bench.reference import Reference

        everything = log_softmax(Reference(model).logits(np.array(tokens)))
        ids = top_ids(everything, IDS)
        made = kept.with_suffix(f".{os.getpid()}.npz")
        np.savez(made, chosen=np.take_along_axis(everything, ids, -1), ids=ids)
        made.replace(kept)
    with np.load(kept) as found:
        return found["chosen"], found["ids"]


def judged(kv: str, isa: str, logits: Floats, chosen: Floats, ids: Ids) -> list[Depth]:
    """One form's distance from the reference, by depth; a range that was not reached has no row."""
    everything = log_softmax(logits)
    kl = kl_divergence(chosen, np.take_along_axis(everything, ids, -1))
    same = everything.argmax(-1) == ids[:, 0]
    rows = []
    for first, border in itertools.pairwise(BORDERS):
        end = min(border, len(kl))
        if end - first < 2:
            break
        part = kl[first:end]
        se = float(part.std(ddof=1)) / (end - first) ** 0.5
        share = float(same[first:end].mean())
        rows.append(Depth(kv, isa, first, end, float(part.mean()), se, float(part.max()), share))
    return rows


def held(rows: Sequence[Depth], decoded_alike: bool) -> bool:
    """Whether every form is within its bound at every depth, and decoding answered what reading did."""
    return decoded_alike and all(row.kl <= floors.DEPTH_KL[row.kv] for row in rows)


def measure(positions: int, forms: Sequence[str], isa: str | None) -> tuple[list[Depth], bool]:
    """Measure every form of keys and values; its rows, and whether decoding answered what reading did."""
    try:
        from bench import depth_model
    except ModuleNotFoundError:
        raise PrerequisiteError(
            "the model at depth cannot be written",
            "the package gguf is in the test environment only",
            "tests/.venv/bin/python -m bench.depth",
        ) from None
    tokens = token_ids(positions, SEED, depth_model.VOCABULARY)
    with tempfile.TemporaryDirectory(prefix="bench-depth-") as name, ExitStack() as stack:
        model = Path(name) / "model.gguf"
        depth_model.write(model)
        begin = time.monotonic()
        chosen, ids = exact(model, tokens)
        say(f"{positions} positions; the reference computed {time.monotonic() - begin:.0f} s")
        side = open_side("assay", Path(name), stack)
        rows, alike = [], True
        for kv in forms:
            found, same = _form(side, model, tokens, kv, isa, Path(name), chosen, ids)
            rows += found
            alike = alike and same
    return rows, alike


def _form(
    side: Child,
    model: Path,
    tokens: Sequence[int],
    kv: str,
    isa: str | None,
    folder: Path,
    chosen: Floats,
    ids: Ids,
) -> tuple[list[Depth], bool]:
    opened = side.ask("open", OPEN_S, model=str(model), threads=2, context=len(tokens), isa=isa, kv=kv)
    read, decoded = folder / "read.npy", folder / "decoded.npy"
    begin = time.monotonic()
    side.ask("logits", LOGITS_S, tokens=tokens, path=str(read))
    seconds = time.monotonic() - begin
    side.ask("logits", LOGITS_S, tokens=tokens, path=str(decoded), one_by_one=DECODED)
    logits = np.load(read)
    same = bool((logits[-DECODED:] == np.load(decoded)).all())
    say(
        f"{kv}: read in {seconds:.0f} s; the last {DECODED} decoded: {'the same bytes' if same else 'DIFFER'}"
    )
    return judged(kv, str(opened["isa"]), logits, chosen, ids), same


def line(row: Depth) -> str:
    """One range on the screen."""
    return (
        f"{row.kv:5} {row.first:6} to {row.end:6}  KL {row.kl:.2e} +- {row.se:.0e}, at most {row.worst:.1e}, "
        f"same top {row.same_top:.2%}  (bound {floors.DEPTH_KL[row.kv]:.0e})"
    )


def markdown(command: str, rows: Sequence[Depth]) -> str:
    """The section of bench/RESULTS.md."""
    cells = [
        [
            row.kv,
            f"{row.first:,} to {row.end:,}",
            f"{row.kl:.2e}",
            f"{row.se:.0e}",
            f"{row.worst:.1e}",
            f"{row.same_top:.2%}",
            f"{floors.DEPTH_KL[row.kv]:.0e}",
        ]
        for row in rows
    ]
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return "\n".join(
        [
            "## Fidelity at depth",
            "",
            f"`{command}`, {stamp}. {machine.describe().cpu}, {rows[0].isa}. A small random `qwen35` in full "
            f"precision, one sequence of {rows[-1].end:,} random tokens, every position against exact "
            f"arithmetic; {IDS} ids and a rest bucket, KL in nats.",
            "",
            table(["keys and values", "positions", "mean KL", "SE", "max", "same top", "bound"], cells),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, judge, print; the exit code."""
    out = bench_parser("depth", "KL to exact arithmetic at depth, for each form of KV.")
    out.add_argument(
        "--positions", type=whole(FEWEST, POSITIONS), default=POSITIONS, help=f"{POSITIONS} by default"
    )
    out.add_argument("--kv", nargs="+", choices=list(floors.DEPTH_KL), default=list(floors.DEPTH_KL))
    out.add_argument("--isa", help="our instruction set (default: the best here)")
    options = out.parse_args(arguments)
    begin = time.monotonic()
    try:
        rows, alike = measure(options.positions, options.kv, options.isa)
    except AssayError as error:
        complain(error)
        return error.exit_code
    except SideError as error:
        complain(PrerequisiteError("the engine could not be measured", str(error), "python -m bench.depth"))
        return PrerequisiteError.exit_code
    for row in rows:
        say(line(row))
    passed = held(rows, alike)
    say(f"{'pass' if passed else 'FAIL'}  mean KL at every depth, and decoding the same bytes as reading")
    if options.write:
        write_section("depth", markdown(f"python -m bench.depth {' '.join(sys.argv[1:])}".strip(), rows))
    if options.json:
        found = [asdict(row) for row in rows]
        wall = time.monotonic() - begin
        print(
            json.dumps(
                {"met": passed, "decoded_alike": alike, "results": found, "wall_s": wall}, allow_nan=False
            )
        )
    return 0 if passed else 5


if __name__ == "__main__":
    sys.exit(main())
