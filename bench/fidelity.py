"""`python -m bench.fidelity`: how far the engine's distributions are from exact arithmetic, beside llama.cpp.

Contract: 11 documents of this repository (prose, code, dialogue, sums, a log), 200 positions of each, one
sequence a document; every side is fed the same token ids, and is compared with the float32 reference
(`bench.reference`) over the same ids (the reference's 128 likeliest and a rest bucket) at the same
positions. Ours is measured for each instruction set of this CPU, with keys and values as halves, as int8 and
at 4 bits; llama.cpp with flash attention and without, its closer one is the one to beat. The ratio's upper
bound is the larger of two paired bootstraps, over positions and over documents.

Exit codes: 0 the bound holds for the default keys and values on every instruction set; 3 something is
missing; 5 it does not hold.
"""

from __future__ import annotations

import hashlib
import importlib.util
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
from assay.models import verify
from assay.paths import CACHE, owned_directory
from bench import floors, machine
from bench.divergence import (
    Fidelity,
    Ids,
    Ratio,
    Side,
    fidelity,
    kl_divergence,
    kl_ratio,
    log_softmax,
    measured,
    top_ids,
)
from bench.options import add_model, bench_parser, whole
from bench.peers import MODEL, OPEN_S, open_side
from bench.results import table, write_section
from bench.sides.llama_c import VARIANTS
from bench.sides.protocol import Side as Child
from bench.sides.protocol import SideError

DOCUMENTS = Path(__file__).with_name("documents")
POSITIONS = 200  # of each document
IDS = 128
SEED = 20_260_101
LOGITS_S = 300.0
THREADS = 1  # no answer of ours depends on it, and nobody spins where the machine is busy
PLAIN_DOCUMENTS = 1  # the plain path takes a second for a few tokens


@dataclass(frozen=True)
class Text:
    """What every side is fed.

    Attributes:
        names: Of the documents.
        tokens: Of each, POSITIONS + 1, the last one never fed.
    """

    names: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]

    def following(self, count: int) -> Ids:
        """The token after each position of the first `count` documents."""
        return np.array([token for each in self.tokens[:count] for token in each[1:]], np.int64)

    def documents(self, count: int) -> Ids:
        """Each position's document."""
        return np.repeat(np.arange(count), POSITIONS)


@dataclass(frozen=True)
class Result:
    """One engine.

    Attributes:
        name: What was measured.
        fidelity: Its distance from the reference.
        ratio: Its mean KL over llama.cpp's; None for llama.cpp itself.
        gated: Whether the bound has to hold for it.
    """

    name: str
    fidelity: Fidelity
    ratio: Ratio | None
    gated: bool


def read_text(tokenize: Child) -> Text:
    """The documents' first tokens, by the model's own tokenizer."""
    names, tokens = [], []
    for path in sorted(DOCUMENTS.glob("*.txt")):
        ids = tokenize.ask("tokenize", LOGITS_S, text=path.read_text("utf-8"))["tokens"]
        if len(ids) <= POSITIONS:
            raise PrerequisiteError(
                f"{path} has {len(ids)} tokens", f"{POSITIONS + 1} are needed", "write more"
            )
        names.append(path.stem)
        tokens.append(tuple(ids[: POSITIONS + 1]))
    return Text(tuple(names), tuple(tokens))


def exact(model: Path, text: Text) -> tuple[Side, Ids]:
    """The reference's answer and its likeliest ids, [positions, IDS]; kept by digest of its inputs.

    Raises:
        PrerequisiteError: the reader of the reference is not installed here.
    """
    sources = [Path(__file__).with_name(name).read_bytes() for name in ("reference.py", "divergence.py")]
    key = hashlib.sha256(repr((sha256_file(model), text.tokens, IDS, sources)).encode()).hexdigest()[:32]
    kept = owned_directory(CACHE) / f"reference-{key}.npz"
    if not kept.exists():
        side, ids = _compute(model, text)
        made = kept.with_suffix(f".{os.getpid()}.npz")
        np.savez(made, chosen=side.chosen, top=side.top, truth=side.truth, ids=ids)
        made.replace(kept)
    with np.load(kept) as found:
        return Side(found["chosen"], found["top"], found["truth"]), found["ids"]


def _compute(model: Path, text: Text) -> tuple[Side, Ids]:
    if importlib.util.find_spec("gguf") is None:
        raise PrerequisiteError(
            "the float32 reference cannot read the model",
            "the package gguf is in the test environment only",
            "tests/.venv/bin/python -m bench.fidelity",
        )
    from bench.reference import Reference

    reference = Reference(model)
    ids, sides = [], []
    for document in text.tokens:
        logits = reference.logits(np.array(document[:-1]))
        ids.append(top_ids(log_softmax(logits), IDS))
        sides.append(measured(logits, ids[-1], np.array(document[1:], np.int64)))
    return _joined(sides), np.concatenate(ids)


def answered(child: Child, text: Text, ids: Ids, folder: Path, count: int, **how: object) -> Side:
    """One engine's answer over the first `count` documents; SideError when it fails."""
    sides = []
    path = folder / "logits.npy"
    for index, document in enumerate(text.tokens[:count]):
        child.ask("logits", LOGITS_S, tokens=document[:-1], path=str(path), **how)
        rows = slice(index * POSITIONS, (index + 1) * POSITIONS)
        sides.append(measured(np.load(path), ids[rows], np.array(document[1:], np.int64)))
    return _joined(sides)


def _joined(sides: Sequence[Side]) -> Side:
    return Side(
        np.concatenate([side.chosen for side in sides]),
        np.concatenate([side.top for side in sides]),
        np.concatenate([side.truth for side in sides]),
    )


def _first(side: Side, count: int) -> Side:
    return Side(side.chosen[:count], side.top[:count], side.truth[:count])


def measure(
    model: Path, isas: Sequence[str] | None, plain: bool, documents: int | None = None
) -> tuple[Text, list[Result]]:
    """Measure every engine; llama.cpp's closer variant comes first, ours after it.

    Args:
        model: A GGUF file.
        isas: Our instruction sets; None for every fast one of this CPU.
        plain: Whether the plain path is measured too, over fewer documents.
        documents: How many, all by default.
    """
    with tempfile.TemporaryDirectory(prefix="bench-fidelity-") as name, ExitStack() as stack:
        folder = Path(name)
        opened = {"model": str(model), "threads": THREADS, "context": 2 * POSITIONS}
        ours = open_side("assay", folder, stack)
        best = str(ours.ask("open", OPEN_S, **opened)["isa"])
        text = read_text(ours)
        if documents is not None:
            text = Text(text.names[:documents], text.tokens[:documents])
        count = len(text.names)
        say(f"{count} documents, {count * POSITIONS} positions; the reference computes ...")
        reference, ids = exact(model, text)
        llama = open_side("llama.cpp", folder, stack)
        llama.ask("open", OPEN_S, **opened)
        found = {way: answered(llama, text, ids, folder, count, variant=way) for way in VARIANTS}
        divergence = {way: kl_divergence(reference.chosen, side.chosen) for way, side in found.items()}
        closer = min(VARIANTS, key=lambda way: float(divergence[way].mean()))
        everywhere = text.documents(count)
        results = [
            Result(
                f"llama.cpp, flash attention {way}",
                fidelity(reference, found[way], everywhere),
                None,
                False,
            )
            for way in sorted(VARIANTS, key=lambda way: way != closer)
        ]
        chosen = isas or {"avx512": ("avx512", "avx2"), "avx2": ("avx2",)}.get(best, ("plain",))
        for isa in [*chosen, *(("plain",) if plain and "plain" not in chosen else ())]:
            most = min(count, PLAIN_DOCUMENTS) if isa == "plain" and count > PLAIN_DOCUMENTS else count
            rows, where = most * POSITIONS, text.documents(most)
            for kv in ("f16", "int8", "q4"):
                ours.ask("open", OPEN_S, **opened, isa=isa, kv=kv)
                side = answered(ours, text, ids, folder, most)
                exactly = _first(reference, rows)
                ratio = None
                if most > 1:
                    kl = kl_divergence(exactly.chosen, side.chosen)
                    ratio = kl_ratio(kl, divergence[closer][:rows], where, SEED)
                results.append(
                    Result(
                        f"ours, {isa}, {kv} keys and values",
                        fidelity(exactly, side, where),
                        ratio,
                        kv == "f16",
                    )
                )
    return text, results


def line(result: Result) -> str:
    """One engine in words."""
    each, ratio = result.fidelity, result.ratio
    told = "" if ratio is None else f"; {ratio.ratio:.2f} times llama.cpp's, upper bound {ratio.upper:.2f}"
    return (
        f"{result.name}: KL {each.kl.mean:.5f} +- {each.kl.se:.5f} ({each.kl.document_se:.5f} by document), "
        f"99 % {each.kl_tail['99']:.4f}, max {each.kl_tail['max']:.3f}; same top {each.same_top:.2%} +- "
        f"{each.same_top_se:.2%}; perplexity {each.perplexity:.3f} ({each.perplexity_ratio:.5f} of the "
        f"reference's); {each.positions} positions{told}"
    )


def held(results: Sequence[Result]) -> bool:
    """Whether the bound holds wherever it has to; False where nothing was measured."""
    gated = [each.ratio for each in results if each.gated and each.ratio is not None]
    return bool(gated) and all(ratio.upper <= floors.KL_RATIO_BOUND for ratio in gated)


def markdown(command: str, text: Text, results: Sequence[Result]) -> str:
    """The section of RESULTS.md."""
    rows = [
        [
            each.name,
            f"{each.fidelity.kl.mean:.5f}",
            f"{each.fidelity.kl.document_se:.5f}",
            f"{each.fidelity.kl_tail['99']:.4f}",
            f"{each.fidelity.kl_tail['max']:.3f}",
            f"{each.fidelity.same_top:.2%}",
            f"{each.fidelity.perplexity:.3f}",
            "—" if each.ratio is None else f"{each.ratio.ratio:.2f}",
            "—" if each.ratio is None else f"{each.ratio.upper:.2f}",
        ]
        for each in results
    ]
    head = ["engine", "mean KL", "SE", "99 %", "max", "same top", "perplexity", "ratio", "upper"]
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return "\n".join(
        [
            "## Fidelity to float32 arithmetic",
            "",
            f"`{command}`, {stamp}. {machine.describe().cpu}. {len(text.names)} documents of {POSITIONS} "
            f"positions, {IDS} ids and a rest bucket; KL in nats, its SE by document; the ratio's upper "
            "bound (95 %, paired, the larger of positions and documents) may be at most "
            f"{floors.KL_RATIO_BOUND}.",
            "",
            table(head, rows),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, judge, print; the exit code."""
    out = bench_parser("fidelity", "Mean KL to float32 arithmetic, ours and llama.cpp's.")
    add_model(out, MODEL)
    out.add_argument("--isa", nargs="+", help="our instruction sets (default: the fast ones here)")
    out.add_argument("--plain", action="store_true", help="the plain path too, over one document")
    out.add_argument("--documents", type=whole(1), help="only so many")
    options = out.parse_args(arguments)
    begin = time.monotonic()
    try:
        text, results = measure(options.model or verify(MODEL), options.isa, options.plain, options.documents)
    except AssayError as error:
        complain(error)
        return error.exit_code
    except SideError as error:
        complain(PrerequisiteError("a side could not be measured", str(error), "python -m bench.fidelity"))
        return PrerequisiteError.exit_code
    for each in results:
        say(line(each))
    passed = held(results)
    say(f"{'pass' if passed else 'FAIL'}  upper bound of the KL ratio at most {floors.KL_RATIO_BOUND}")
    if options.write:
        command = f"python -m bench.fidelity {' '.join(sys.argv[1:])}".strip()
        write_section("fidelity", markdown(command, text, results))
    if options.json:
        results_json = [asdict(each) for each in results]
        print(
            json.dumps(
                {
                    "met": passed,
                    "bound": floors.KL_RATIO_BOUND,
                    "documents": text.names,
                    "positions": POSITIONS * len(text.names),
                    "results": results_json,
                    "wall_s": time.monotonic() - begin,
                },
                allow_nan=False,
            )
        )
    return 0 if passed else 5


if __name__ == "__main__":
    sys.exit(main())
