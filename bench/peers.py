"""`python -m bench.peers`: our engine against llama.cpp and ik_llama.cpp, on the same file, in one run.

Contract: each side is a child process of its own, which computes only while it is measured; pairs are in
ABBA order, the roofs of reading and of int8 multiplication are measured around them, and the peers are
asked for the bare computation, without server or sampler, as ours is. Decode is so many steps of one given
token after a context, tokens / wall seconds; prefill is the prompt's tokens / seconds of one cold prompt
with the last token's logits. A peer slower than its share of the machine (`bench.floors`) would flatter us:
the run is void then, exit 5.

Exit codes: 0 every floor is met; 2 bad options; 3 a peer's wheel, the model or quiet is missing; 4 a figure
was not measured; 5 void, or a floor is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from assay.console import complain, say
from assay.errors import AssayError, PrerequisiteError
from assay.models import verify
from assay.paths import ROOT
from bench import floors, machine
from bench.conduct import Conduct, Figure, Shape
from bench.options import add_busy, add_model, bench_parser, whole
from bench.paired import Comparison
from bench.peers_report import Report
from bench.peers_text import figure_line, markdown, report_text, roof_line
from bench.results import write_section
from bench.sides.llama_c import VARIANTS
from bench.sides.protocol import Side, SideError

MODEL = "smollm2-135m"
PEERS: Mapping[str, str] = {"llama.cpp": "xllamacpp", "ik_llama.cpp": "ik_llama_cpp"}
MODULES: Mapping[str, str] = {"llama.cpp": "llama_cpp", "ik_llama.cpp": "ik_llama_cpp"}
TEST_PYTHON = ROOT / "tests" / ".venv" / "bin" / "python"
ROOM = 256  # positions beyond the longest context
OPEN_S = 300.0  # opening may compile


@dataclass(frozen=True)
class Plan:
    """What a run measures.

    Attributes:
        shapes: In order; those of one number of threads together.
        peers: Names.
        control_pairs: Of our engine against itself.
        end_s: After so long only two pairs a figure.
    """

    shapes: tuple[Shape, ...]
    peers: tuple[str, ...]
    control_pairs: int
    end_s: float


def plan(options: argparse.Namespace) -> Plan:
    """Put the shapes together; a prompt's measurement leaves its context behind, so decode follows it."""
    quick = options.quick
    tokens = options.tokens or (32 if quick else 64)
    shapes: list[Shape] = []
    for threads in options.threads:
        lead = threads == max(options.threads)
        share = 1 if lead else 2
        for length in sorted({*options.contexts, *options.prompts}):
            if quick and not lead and length:
                continue
            if length in options.prompts:
                pairs = options.pairs or (
                    {2048: 2}.get(length, 4) if quick else {128: 8, 512: 6}.get(length, 4)
                )
                pilot = 1 if quick or length > 512 else 2
                shapes.append(Shape("prefill", length, threads, length, max(2, pairs // share), pilot))
            if length in options.contexts:
                pairs = options.pairs or (4 if quick else 8)
                shapes.append(
                    Shape("decode", length, threads, tokens, max(2, pairs // share), 1 if quick else 2)
                )
    return Plan(tuple(shapes), tuple(options.peers), 6 if quick else 10, 150.0 if quick else 600.0)


def interpreter(peer: str) -> Path:
    """The Python that has a peer's wheel: this one, or the test environment's.

    Raises:
        PrerequisiteError: neither has it.
    """
    package = PEERS[peer]
    if importlib.util.find_spec(package) is not None:
        return Path(sys.executable)
    if TEST_PYTHON.exists():
        found = subprocess.run(
            [
                TEST_PYTHON,
                "-c",
                f"import importlib.util as u, sys; sys.exit(u.find_spec('{package}') is None)",
            ],
            check=False,
            timeout=60,
        )
        if found.returncode == 0:
            return TEST_PYTHON
    raise PrerequisiteError(
        f"there is no {peer} to measure against",
        f"its wheel ({package}) is in the test environment only, which is not made",
        "eval/scripts/test --fast   # makes tests/.venv, or leave it out: --peers",
    )


def require_quiet(busy: bool) -> float:
    """Watch the machine; the share of it that is in use.

    Raises:
        PrerequisiteError: too much, and `busy` does not allow it.
    """
    share = machine.busy_share()
    if share > machine.QUIET_SHARE and not busy:
        raise PrerequisiteError(
            f"the machine is busy: {share:.0%} of its cores' time is in use",
            f"speeds measured above {machine.QUIET_SHARE:.0%} are of the neighbours too",
            "wait until it is quiet, or measure all the same: --busy",
        )
    return share


def open_side(name: str, folder: Path, sides: ExitStack) -> Side:
    """Start a side's process, "assay" or a peer by name, with its log in `folder`; it ends with `sides`.

    Raises:
        PrerequisiteError: no interpreter has the peer's wheel.
    """
    if name in PEERS:
        python, module = interpreter(name), MODULES[name]
    else:
        python, module = Path(sys.executable), "assay_engine"
    side = Side(name, [os.fspath(python), "-m", f"bench.sides.{module}"], folder / f"{module}.log")
    sides.callback(side.close)
    return side


class Run:
    """One run's sides, figures and surroundings."""

    def __init__(self, options: argparse.Namespace, model: Path, folder: Path) -> None:
        """Nothing is started yet."""
        self._options = options
        self._model = model
        self._folder = folder
        self.sides: dict[str, Mapping[str, Any]] = {}
        self.figures: list[Figure] = []
        self.roofs: list[dict[str, Any]] = []
        self.peaks: dict[int, dict[str, float | None]] = {}
        self.control: Comparison | None = None
        self.idle: dict[str, float] = {}
        self.missing: dict[str, str] = {}
        self.broken: dict[str, str] = {}

    def measure(self, wanted: Plan, seed: int) -> None:
        """Measure everything, one number of threads after the other."""
        end = time.monotonic() + wanted.end_s
        for threads in sorted({shape.threads for shape in wanted.shapes}, reverse=True):
            shapes = [shape for shape in wanted.shapes if shape.threads == threads]
            with ExitStack() as sides:
                conduct = self._open(threads, shapes, wanted.peers, seed, sides)
                if self.control is None:
                    self._measure_control(conduct, threads, wanted.control_pairs, sides)
                self.peaks[threads] = {
                    kind: conduct.ask(conduct.ours, "peak", kind=kind, threads=threads)["macs_per_s"]
                    for kind in ("avx2", "avx512", "reference")
                }
                for shape in shapes:
                    self._measure_shape(conduct, shape, end)
                for name, used in conduct.idle_cpu_s.items():
                    share = used / max(conduct.idle_wall_s[name], 1e-9)
                    self.idle[name] = max(share, self.idle.get(name, 0.0))
                self.broken.update({f"{peer}, {way}": why for (peer, way), why in conduct.broken.items()})

    def _open(
        self, threads: int, shapes: Sequence[Shape], peers: Sequence[str], seed: int, sides: ExitStack
    ) -> Conduct:
        context = max(shape.length for shape in shapes) + ROOM

        def start(name: str) -> Side:
            side = open_side(name, self._folder, sides)
            extra = {"isa": self._options.isa, "kv": self._options.kv} if name == "assay" else {}
            self.sides[name] = side.ask(
                "open", OPEN_S, model=str(self._model), threads=threads, context=context, **extra
            )
            return side

        say(f"opening the sides with {threads} thread{'s' if threads > 1 else ''} ...")
        ours = start("assay")
        opened: dict[str, Side] = {}
        for name in peers:
            try:
                opened[name] = start(name)
            except SideError as error:
                self.missing[name] = str(error)
        return Conduct(ours, opened, seed, {name: partial(start, name) for name in opened})

    def _measure_control(self, conduct: Conduct, threads: int, pairs: int, sides: ExitStack) -> None:
        twin = open_side("assay", self._folder, sides)
        twin.ask(
            "open",
            OPEN_S,
            model=str(self._model),
            threads=threads,
            context=ROOM,
            isa=self._options.isa,
            kv=self._options.kv,
        )
        self.control = conduct.control(twin, Shape("decode", 0, threads, 64, pairs))
        twin.close()

    def _measure_shape(self, conduct: Conduct, shape: Shape, end: float) -> None:
        assay = self.sides["assay"]
        read_bytes = assay["weight_bytes"]
        if shape.kind == "decode":
            read_bytes += assay["kv_bytes_per_position"] * (shape.length + shape.tokens // 2)
        before = conduct.roofs(read_bytes, (1, 2))
        speeds: list[float] = []
        for name in conduct.peers:
            figure = conduct.figure(name, shape, VARIANTS, end)
            speeds += figure.ours
            self.figures.append(figure)
            say(figure_line(figure))
        if not speeds:  # no peer was there, or none could
            speeds = [conduct.speed(conduct.ours, shape) for _ in range(max(3, shape.pairs))]
        after = conduct.roofs(read_bytes, (1, 2))
        self.roofs.append(
            {
                "kind": shape.kind,
                "length": shape.length,
                "threads": shape.threads,
                "speeds": speeds,
                "read_bytes": read_bytes,
                "read_s": {str(count): (before[count] + after[count]) / 2 for count in before},
                "read_s_best": {str(count): min(before[count], after[count]) for count in before},
            }
        )
        say(roof_line(self.roofs[-1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, judge, print; the exit code."""
    options = parser().parse_args(arguments)
    try:
        return _main(options)
    except AssayError as error:
        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 6


def _main(options: argparse.Namespace) -> int:
    model = options.model or verify(MODEL)
    for peer in options.peers:
        interpreter(peer)
    share = require_quiet(options.busy)
    wanted = plan(options)
    seed = time.time_ns() % (1 << 31) if options.seed is None else options.seed
    load, before, begin = os.getloadavg(), machine.cpu_time(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        run = Run(options, model, Path(folder))
        try:
            run.measure(wanted, seed)
        except SideError as error:  # ours: the peers' are in their figures
            raise PrerequisiteError("our engine could not be measured", str(error)) from error
    after = machine.cpu_time()
    wall = time.monotonic() - begin
    report = Report(
        taken=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=f"python -m bench.peers {' '.join(sys.argv[1:])}".strip(),
        quick=options.quick,
        seed=seed,
        wall_s=wall,
        machine=machine.describe(),
        load_before=load,
        load_after=os.getloadavg(),
        busy_before=share,
        steal_share=(after.steal_s - before.steal_s) / max(after.total_s - before.total_s, 1e-9),
        sides=run.sides,
        missing=run.missing,
        broken=run.broken,
        figures=tuple(run.figures),
        roofs=tuple(run.roofs),
        peaks=run.peaks,
        control=run.control,
        idle=run.idle,
    )
    say(report_text(report))
    if options.write:
        write_section("peers", markdown(report))
    if options.json:
        print(json.dumps(report.as_json(), allow_nan=False))
    return report.exit_code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = bench_parser("peers", "Our engine's speed against llama.cpp's and ik_llama.cpp's.")
    out.add_argument(
        "--quick", action="store_true", help="at most 4 minutes: fewer pairs, one thread at context 0"
    )
    add_busy(out)
    add_model(out, MODEL)
    out.add_argument("--peers", nargs="*", choices=sorted(PEERS), default=list(PEERS))
    out.add_argument("--threads", type=int, nargs="+", choices=(1, 2), default=[1, 2])
    out.add_argument(
        "--contexts", type=whole(0), nargs="*", default=list(floors.DECODE_CONTEXTS), help="decode at"
    )
    out.add_argument(
        "--prompts", type=whole(1), nargs="*", default=list(floors.PREFILL_PROMPTS), help="prefill of"
    )
    out.add_argument("--tokens", type=whole(1), help="decoded in one measurement")
    out.add_argument("--pairs", type=whole(1), help="of every figure")
    out.add_argument("--isa", help="our instruction set: avx512, avx2 or plain (default: the best here)")
    out.add_argument(
        "--kv", choices=("f16", "int8", "q4"), default="f16", help="how our keys and values are kept"
    )
    out.add_argument(
        "--seed", type=whole(0), help="of prompts and bootstraps (default: from the clock, and told)"
    )
    return out


if __name__ == "__main__":
    sys.exit(main())
