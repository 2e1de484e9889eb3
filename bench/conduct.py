"""Conducts a comparison: one side computes while the others sleep, in ABBA pairs, with the roofs beside it.

Contract: every question goes through `Conduct.ask`, which also sums what processor time the sides used that
were not asked: a side that spins while another is measured falsifies the figure, and shows. A peer's error
ends the figure it belongs to, with the error in it, and nothing else.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from bench.paired import Comparison, abba, compare
from bench.sides.protocol import Side, SideError

Kind = Literal["decode", "prefill"]
Result = TypeVar("Result")

SETTLE_S = 0.03  # between two sides: worker threads that wait actively for a moment go to sleep
QUESTION_S = 120.0  # a prompt of 2048 tokens takes a slow peer a quarter of it


@dataclass(frozen=True)
class Shape:
    """One thing that is measured.

    Attributes:
        kind: "decode": steps of one token; "prefill": one cold prompt.
        length: Tokens before the first decoded one, or of the prompt.
        threads: Of every side.
        tokens: Decoded in one measurement; the prompt's for prefill.
        pairs: To measure.
        pilot: Measurements of each of a peer's variants before the faster is kept.
    """

    kind: Kind
    length: int
    threads: int
    tokens: int
    pairs: int
    pilot: int = 1


@dataclass(frozen=True)
class Figure:
    """Our engine and one peer on one shape, in tokens a second.

    Attributes:
        tried: Best speed of each way of attention before one was kept ("off", "on": flash attention).
        kept: The faster, which the pairs are of.
        ours: Each pair's.
        theirs: Each pair's.
        comparison: None when there is none.
        error: What the peer said when it failed.
    """

    kind: Kind
    length: int
    threads: int
    peer: str
    tried: Mapping[str, float] = field(default_factory=dict)
    kept: str | None = None
    ours: Sequence[float] = ()
    theirs: Sequence[float] = ()
    comparison: Comparison | None = None
    error: str | None = None

    @property
    def ratio(self) -> float | None:
        """Ours over theirs; None when it was not measured."""
        return None if self.comparison is None else self.comparison.ratio

    @property
    def their_speed(self) -> float | None:
        """The peer's median."""
        return statistics.median(self.theirs) if self.theirs else None


@dataclass(frozen=True)
class Roofs:
    """What the machine offered around a figure.

    Attributes:
        read_bytes: What a decode step reads: the weights once, and the context's keys and values.
        read_s: Seconds of plain reads of as many bytes, by number of threads, medians of before and after.
    """

    read_bytes: int
    read_s: Mapping[int, float]


class Conduct:
    """The sides of one number of threads."""

    def __init__(
        self,
        ours: Side,
        peers: Mapping[str, Side],
        seed: int,
        restarts: Mapping[str, Callable[[], Side]] | None = None,
    ) -> None:
        """Take over opened sides.

        Args:
            ours: Our engine.
            peers: By name.
            seed: Of prompts and bootstraps; each prompt gets the next one.
            restarts: Opens a peer again, by name, after it died.
        """
        self.ours = ours
        self.peers = dict(peers)
        self.broken: dict[tuple[str, str], str] = {}
        self._restarts = dict(restarts or {})
        self.seed = seed
        self._next_prompt = seed
        self.idle_cpu_s: dict[str, float] = {side.name: 0.0 for side in (ours, *peers.values())}
        self.idle_wall_s: dict[str, float] = dict(self.idle_cpu_s)

    def ask(self, side: Side, what: str, **arguments: object) -> dict[str, Any]:
        """Ask one side while the others are watched; SideError when it fails."""
        others = [each for each in (self.ours, *self.peers.values()) if each is not side]
        time.sleep(SETTLE_S)
        before = [each.cpu_seconds() for each in others]
        begin = time.monotonic()
        try:
            return side.ask(what, QUESTION_S, **arguments)
        finally:
            wall = time.monotonic() - begin
            for each, used in zip(others, before, strict=True):
                self.idle_cpu_s[each.name] += max(0.0, each.cpu_seconds() - used)
                self.idle_wall_s[each.name] += wall

    def speed(self, side: Side, shape: Shape, variant: str | None = None) -> float:
        """Tokens a second of one measurement."""
        self._next_prompt += 1
        chosen = {} if variant is None else {"variant": variant}
        if shape.kind == "prefill":
            answer = self.ask(side, "prefill", tokens=shape.length, seed=self._next_prompt, **chosen)
        else:
            answer = self.ask(
                side,
                "decode",
                context=shape.length,
                tokens=shape.tokens,
                seed=self._next_prompt,
                **chosen,
            )
        return shape.tokens / float(answer["seconds"])

    def figure(self, name: str, shape: Shape, variants: Sequence[str], end: float) -> Figure:
        """Compare with one peer: try its variants, pair the faster, and the other if that looks faster.

        A variant that fails is left out from then on (`broken` says why); a peer that died of it is started
        again.

        Args:
            name: The peer's.
            shape: What to measure.
            variants: Its ways of attention.
            end: Monotonic time after which only two pairs are measured.
        """
        tried: dict[str, float] = {}
        found: list[Figure] = []
        for turn in range(shape.pilot):
            for variant in variants if turn % 2 == 0 else reversed(variants):
                speed = self._attempt(name, variant, partial(self.speed, shape=shape, variant=variant))
                if speed is not None:
                    tried[variant] = max(speed, tried.get(variant, 0.0))
        for variant in sorted(variants, key=lambda each: -tried.get(each, 0.0)):
            if found and (time.monotonic() > end or tried.get(variant, 0.0) <= (found[0].their_speed or 0.0)):
                break
            pairs = self._attempt(name, variant, partial(self._pairs, shape=shape, variant=variant, end=end))
            if pairs is not None:
                ours, theirs = pairs
                compared = compare(ours, theirs, self.seed)
                found.append(
                    Figure(
                        shape.kind,
                        shape.length,
                        shape.threads,
                        name,
                        dict(tried),
                        variant,
                        ours,
                        theirs,
                        compared,
                    )
                )
        if not found:
            why = "; ".join(
                f"{way}: {self.broken[name, way]}" for way in variants if (name, way) in self.broken
            )
            return Figure(shape.kind, shape.length, shape.threads, name, tried, error=why)
        return max(found, key=lambda each: each.their_speed or 0.0)

    def _attempt(self, name: str, variant: str, work: Callable[[Side], Result]) -> Result | None:
        """Do something with a variant that is not broken; note one that breaks, and start its peer again."""
        if (name, variant) in self.broken:
            return None
        try:
            return work(self.peers[name])
        except SideError as error:
            self.broken[name, variant] = str(error)
            if not self.peers[name].alive and name in self._restarts:
                restarts = self._restarts
                with contextlib.suppress(SideError):
                    self.peers[name] = restarts[name]()
            return None

    def _pairs(
        self, side: Side, shape: Shape, variant: str | None, end: float
    ) -> tuple[list[float], list[float]]:
        ours: list[float] = []
        theirs: list[float] = []
        for ours_first in abba(shape.pairs):
            if len(ours) >= 2 and time.monotonic() > end:
                break
            if ours_first:
                ours.append(self.speed(self.ours, shape))
                theirs.append(self.speed(side, shape, variant))
            else:
                theirs.append(self.speed(side, shape, variant))
                ours.append(self.speed(self.ours, shape))
        return ours, theirs

    def control(self, twin: Side, shape: Shape) -> Comparison:
        """Our engine against itself in another process: there must be no effect."""
        ours, theirs = self._pairs(twin, shape, None, float("inf"))
        return compare(ours, theirs, self.seed)

    def roofs(self, read_bytes: int, threads: Sequence[int]) -> dict[int, float]:
        """Seconds of reading so many bytes, by number of threads."""
        return {
            count: float(self.ask(self.ours, "read", size_bytes=read_bytes, threads=count)["seconds"])
            for count in threads
        }
