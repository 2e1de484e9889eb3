"""`assay serve MODEL --plan`: what a CUDA device needs for a model, what fits, and how fast a card could be.

Contract: memory is exact but for two allowances that are named; bytes and operations are counted as the
kernels read and compute; times are those counts at a card's published figures (`cards.toml`) and at assumed
shares of them. Nothing is loaded and nothing here was measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

from server.build import EngineArgumentError, EngineError
from server.cards import Card, Shares
from server.cards import read as read_cards
from server.checkpoint import Checkpoint
from server.errors import MISSING_DEPENDENCY, StartError
from server.guesser import Draft
from server.origin import find_origin
from server.plan import GIB, Cost, Holding, Memory, Step, gib, largest, plan, with_kept

SCHEMA = "assay/plan/v1"
DEPTH = 8192  # tokens before an answer, and of a prompt, that figures are usually told of
COLUMNS = ("MB", "weights", "kv", "state", "between", "int8 G", "half G", "vec. G", "publ.", "assumed")
WIDTHS = (9, 9, 9, 8, 8, 9, 8, 8, 9, 9)
UNITS = {"B": 1, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": GIB}


@dataclass(frozen=True, slots=True)
class Work:
    """What one kind of work costs in the mean of its tokens."""

    name: str
    tokens: int  # that the cost is of
    cost: Cost

    def tokens_per_s(self, card: Card, shares: Shares) -> float:
        """Return the rate at these shares of a card's figures."""
        return self.tokens / card.seconds(self.cost, shares)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole plan."""

    model: str
    kv: str
    head: str
    kept_slots: int
    card: Card
    limit_bytes: int  # of device memory
    memory: Memory  # what fits: with the draft model beside it
    draft: str | None  # a small model that guesses
    draft_memory: Memory | None
    works: tuple[Work, ...]  # of plain decoding
    assumed: Shares

    @property
    def total_bytes(self) -> int:
        """What both models take, and the driver once."""
        return self.memory.total_bytes + (self.draft_memory.total_bytes if self.draft_memory else 0)

    @property
    def fits(self) -> bool:
        """Whether all of it fits into the limit."""
        return self.total_bytes <= self.limit_bytes


def printed(name: str) -> str:
    """Return a file's name as it can be printed."""
    return name if name.isprintable() else ascii(name)[1:-1]


def size_bytes(text: str) -> int:
    """Return the bytes of a size such as 24GiB, 800MB or 25769803776B; without a unit it could be any.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?\s*([A-Za-z]+)", text)
    unit = UNITS.get(found[3]) if found else None
    if found is None or unit is None or (found[2] and unit == 1):
        raise ValueError(f"{text!r} is no size, such as 24GiB ({', '.join(UNITS)})")
    part = found[2] or "0"
    return int(found[1]) * unit + int(part) * unit // int("1" + "0" * len(part))


def make(
    model: Path,
    holding: Holding,
    card_key: str,
    limit_bytes: int,
    pass_rows: int,
    *,
    draft: Draft | None = None,
    fewer_kept: bool = False,
) -> Report:
    """Return the plan of a model on a card.

    Args:
        model: a GGUF file or a directory of safetensors files.
        holding: how it is to be held.
        card_key: a key of `cards.toml`.
        limit_bytes: of device memory; 0: what the card has.
        pass_rows: of a prompt, that the server computes together.
        draft: a small model that guesses for it, held beside it.
        fewer_kept: of the kept slots, only as many as fit.

    Raises:
        StartError: there is no such card, or the engine cannot serve such a model or holding.
    """
    cards, assumed = read_cards()
    if card_key not in cards:
        raise StartError(
            f"there is no card {card_key}",
            f"server/cards.toml has {', '.join(cards)}",
            "assay serve MODEL --plan --vram 24GiB",
        )
    card = cards[card_key]
    limit = limit_bytes or card.memory_bytes
    try:
        found = find_origin(model).model
        memory, _ = plan(found, holding, limit, [])
        small = None if draft is None else draft.memory(holding.slots, memory.context)
        if fewer_kept:
            room = max(limit - (small.total_bytes if small else 0), 0)
            holding = with_kept(found, holding, holding.kept_slots, room)
            memory, _ = plan(found, holding, limit, [])
        if draft is not None:
            memory = _with_draft(found, draft, holding, memory, limit)
        shapes = dict(_shapes(holding.slots, memory.context, pass_rows))
        _, costs = plan(found, holding, limit, [step for steps in shapes.values() for step in steps])
    except EngineArgumentError as error:
        raise StartError(f"{model} cannot be held as asked", str(error), "assay serve --help") from error
    except EngineError as error:
        raise StartError(
            f"the engine cannot plan {model}", str(error), "assay serve --help", MISSING_DEPENDENCY
        ) from error
    given = iter(costs)
    works = tuple(
        Work(
            name,
            sum(step.sequences * step.rows for step in steps),
            reduce(add, (next(given) for _ in steps)),
        )
        for name, steps in shapes.items()
    )
    return Report(
        model=printed(model.name),
        kv=holding.kv,
        head=holding.head,
        kept_slots=holding.kept_slots,
        card=card,
        limit_bytes=limit,
        memory=memory,
        draft=None if draft is None else printed(draft.origin.path.name),
        draft_memory=small,
        works=works,
        assumed=assumed,
    )


def _with_draft(
    model: Path | Checkpoint, draft: Draft, holding: Holding, memory: Memory, limit: int
) -> Memory:
    """Return a model's memory with the context and the answers at once that fit when a draft is beside it."""

    def fits(asked: Holding) -> bool:
        own, _ = plan(model, asked, limit, [])
        return own.total_bytes + draft.memory(asked.slots, own.context).total_bytes <= limit

    return replace(
        memory,
        largest_context=largest(memory.largest_context, lambda n: fits(replace(holding, context=n))),
        largest_slots=largest(memory.largest_slots, lambda n: fits(replace(holding, slots=n))),
    )


def _shapes(slots: int, context: int, pass_rows: int) -> Iterator[tuple[str, list[Step]]]:
    """Yield each kind of work by name, as the steps it takes."""
    for position in sorted({0, min(DEPTH, context - 1), context - 1}):
        yield f"decode at {position:,}", [Step(1, 1, position, 1)]
    if slots > 1:
        position = min(DEPTH, context - 1)
        yield f"decode of {slots} at {position:,}", [Step(slots, 1, position, slots)]
    for prompt in sorted({min(DEPTH, context), context}):
        starts = range(0, prompt, pass_rows)
        yield (
            f"prompt of {prompt:,}",
            [
                Step(1, min(pass_rows, prompt - start), start, int(start + pass_rows >= prompt))
                for start in starts
            ],
        )


def document(report: Report) -> str:
    """Return the plan as one JSON object."""
    value = {
        "schema": SCHEMA,
        "model": report.model,
        "kv": report.kv,
        "head": report.head,
        "kept_slots": report.kept_slots,
        "card": asdict(report.card),
        "assumed": asdict(report.assumed),
        "limit_bytes": report.limit_bytes,
        "fits": report.fits,
        "total_bytes": report.total_bytes,
        "memory": asdict(report.memory),
        "draft": None if report.draft_memory is None else _draft_document(report.draft, report.draft_memory),
        "work": [
            {
                "name": work.name,
                "tokens": work.tokens,
                **asdict(work.cost),
                "tokens_per_s_at_published": work.tokens_per_s(report.card, Shares()),
                "tokens_per_s_at_assumed": work.tokens_per_s(report.card, report.assumed),
            }
            for work in report.works
        ],
    }
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _draft_document(name: str | None, memory: Memory) -> dict[str, object]:
    # What fits is told of both together.
    sizes = {key: value for key, value in asdict(memory).items() if not key.startswith("largest_")}
    return {"model": name, "memory": sizes}


def text(report: Report) -> str:
    """Return the plan as it is printed."""
    return "\n".join([*_memory_lines(report), "", *_work_lines(report)])


def _memory_lines(report: Report) -> Iterator[str]:
    memory, draft, answers = report.memory, report.draft_memory, report.memory.slots - report.kept_slots
    where = f"on a CUDA device of {gib(report.limit_bytes)}"
    yield f"{report.model}, keys and values as {report.kv}, head as {report.head}: memory {where}"
    yield from map(_row, _parts(memory, report.kept_slots))
    yield _row(("driver", memory.driver_bytes, "allowance"))
    if draft is not None:
        yield _row(("together", memory.total_bytes, ""))
        yield f"{report.draft}, which guesses, keys and values as {Holding().kv}: memory beside it"
        yield from map(_row, _parts(draft, 0))
        yield _row(("together", draft.total_bytes, ""))
        yield "both"
    yield _row(("together", report.total_bytes, "fits" if report.fits else "DOES NOT FIT"))
    most = f"of {memory.model_context:,}, with {answers} at once"
    yield f"  {'largest context':<18}{memory.largest_context:>12,}  {most}"
    yield f"  {'most at once':<18}{memory.largest_slots:>12,}  with {memory.context:,} positions each"


def _parts(memory: Memory, kept_slots: int) -> Iterator[tuple[str, int, str]]:
    """Yield name, bytes and note of what one model takes."""
    yield "weights", memory.weight_bytes, ""
    answers, each = memory.slots - kept_slots, memory.kv_bytes_per_position
    held = f"{answers} x {memory.context:,} positions at {each:,} B"
    yield "keys and values", memory.kv_bytes, held + (f", {kept_slots} kept" if kept_slots else "")
    if memory.state_bytes:
        state = f"{memory.slots} slots at {memory.state_bytes_per_slot / 1e6:,.1f} MB"
        yield "recurrent state", memory.state_bytes, state
    yield "workspace", memory.workspace_bytes, f"of up to {memory.prefill_rows:,} rows"
    yield "graphs", memory.graph_bytes, "allowance"


def _row(part: tuple[str, int, str]) -> str:
    name, size, note = part
    return f"  {name:<18}{gib(size):>12}  {note}".rstrip()


def _work_lines(report: Report) -> Iterator[str]:
    card, assumed = report.card, report.assumed
    if report.draft is not None:
        yield "of plain decoding, since what guesses gain depends on the text: bench.speculation measures it"
    yield f"work, counted; tokens/s at the published figures of one {card.name} and at assumed shares of them"
    yield (
        f"  ({card.bytes_per_s / 1e9:,.0f} GB/s x {assumed.bandwidth:.2f}, int8 "
        f"{card.int8_operations_per_s / 1e12:,.0f} and halves {card.half_operations_per_s / 1e12:,.0f} x "
        f"{assumed.matrix:.2f}, vector {card.vector_operations_per_s / 1e12:,.1f} x {assumed.vector:.2f} T/s)"
    )
    yield f"  {'a token of':<22}" + "".join(
        f"{name:>{width}}" for name, width in zip(COLUMNS, WIDTHS, strict=True)
    )
    for work in report.works:
        total, tokens = work.cost.total, work.tokens
        sizes = (total.bytes, *(part.bytes for part in work.cost.parts))
        counts = (total.int8_operations, total.half_operations, total.vector_operations)
        rates = (work.tokens_per_s(card, Shares()), work.tokens_per_s(card, assumed))
        cells = [
            *(f"{size / tokens / 1e6:,.0f}" for size in sizes),
            *(f"{count / tokens / 1e9:,.1f}" for count in counts),
            *(f"{rate:,.1f}" for rate in rates),
        ]
        # A value that is wider than its column moves the rest, and never touches the one before it.
        columns = (f" {cell:>{width - 1}}" for cell, width in zip(cells, WIDTHS, strict=True))
        yield f"  {work.name:<22}{''.join(columns)}"
