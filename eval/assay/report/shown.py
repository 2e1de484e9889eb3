"""What the page shows before any script runs: head, counts and scores, as values for its template.

Positions in bars are shares of a scale that all benchmarks of the page share; they become rules of the page's
one style sheet, since its policy allows no style of an element's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.compare.comparison import Compared, Comparison
from assay.record.statistics import Bounds
from assay.view.view import Benchmark, Fact, View

COUNTS = ("planned", "scored", "truncated", "errored", "missing", "empty", "thought_only", "unparsed")
NO_SCORE = ("errored", "missing")


@dataclass(frozen=True)
class Score:
    """One benchmark of one side: `id` names its bar in the style sheet."""

    id: str
    letter: str
    benchmark: Benchmark

    def count(self, name: str) -> int | None:
        """One of its counts; None where nobody tells."""
        return self.benchmark.counts.get(name)


@dataclass(frozen=True)
class Row:
    """A benchmark's line in the table: one score, or two and how they compare."""

    number: int
    name: str
    scores: tuple[Score, ...]
    compared: Compared | None = None


@dataclass(frozen=True)
class Side:
    """A run as the page's head shows it."""

    letter: str
    view: View
    counts: Mapping[str, int | None]
    doubtful: tuple[Fact, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Scale:
    """What a bar's two ends stand for."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Where a value lies, in percent of the bar."""
        return 100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def side(letter: str, view: View, benchmarks: Sequence[Benchmark]) -> Side:
    """A run's head: its counts over all benchmarks, and its facts, those that weaken it apart."""
    facts = view.facts()
    counts: dict[str, int | None] = {}
    for name in COUNTS:
        found = [benchmark.counts.get(name) for benchmark in benchmarks]
        told = [count for count in found if count is not None]
        counts[name] = sum(told) if told else None
    return Side(
        letter,
        view,
        counts,
        tuple(fact for fact in facts if not fact.sound),
        tuple(fact for fact in facts if fact.sound),
    )


def rows(ours: Sequence[Benchmark], theirs: Sequence[Benchmark], comparison: Comparison | None) -> list[Row]:
    """The table's lines: A's benchmarks, then those that only B has."""
    others = {benchmark.name: benchmark for benchmark in theirs}
    compared = {found.name: found for found in comparison.benchmarks} if comparison else {}
    names = [benchmark.name for benchmark in ours]
    names += [name for name in others if name not in set(names)]
    first = {benchmark.name: benchmark for benchmark in ours}
    found = []
    for number, name in enumerate(names):
        both = (("a", first.get(name)), ("b", others.get(name)))
        scores = tuple(
            Score(f"score-{number}-{letter}", letter, benchmark) for letter, benchmark in both if benchmark
        )
        found.append(Row(number, name, scores, compared.get(name)))
    return found


def accepted(comparison: Comparison | None) -> list[tuple[str, str, str, int]]:
    """Each accepted difference once: its name, what A had, what B had, and of how many benchmarks."""
    found = comparison.accepted if comparison else ()
    counted = Counter((each.name, each.a or "none", each.b or "none") for each in found)
    return [(*each, count) for each, count in counted.items()]


def told(table: Iterable[Row]) -> Mapping[str, bool]:
    """Which columns hold anything: what no benchmark of the page tells is left out."""
    scores = [score for row in table for score in row.scores]
    return {
        "baseline": any(score.benchmark.baseline is not None for score in scores),
        "unparsed": any(score.count("unparsed") is not None for score in scores),
    }


def verdict(head: Side, comparison: Comparison | None) -> tuple[str, str]:
    """The page's one word, and a sentence that says what it rests on."""
    if comparison is None:
        planned, lacking = head.counts["planned"] or 0, sum(head.counts[name] or 0 for name in NO_SCORE)
        said = f"{lacking:,} of {planned:,} planned samples have no score"
        if not lacking:
            said = f"every one of {planned:,} planned samples has a score"
        if cut := head.counts["truncated"]:
            said += f"; {cut:,} answers were cut by a limit"
        return head.view.status, said
    words = [found.verdict for found in comparison.benchmarks]
    told = ", ".join(f"{word} in {words.count(word)}" for word in dict.fromkeys(words))
    of = f"of {len(words)} benchmark{'s' if len(words) > 1 else ''}"
    pairs = sum(found.pairs for found in comparison.benchmarks)
    spoken = {"better": "B is better", "worse": "B is worse"}.get(comparison.verdict, comparison.verdict)
    return spoken, f"{told} {of}, over {pairs:,} pairs of the same task and rollout"


def scale(table: Iterable[Row]) -> Scale:
    """0 to 1, wider where a score or a bound lies beyond."""
    values = [0.0, 1.0]
    for row in table:
        for score in row.scores:
            values += _values(score.benchmark.score, score.benchmark.bounds)
    return Scale(min(values), max(values))


def difference_scale(table: Iterable[Row]) -> Scale:
    """As far to either side of 0 as the widest interval, at least a hundredth."""
    widest = 0.01
    for row in table:
        if row.compared:
            values = _values(row.compared.all.difference, row.compared.all.bounds)
            widest = max([widest, *map(abs, values)])
    return Scale(-widest, widest)


def rules(table: Sequence[Row]) -> Iterator[str]:
    """The style sheet's rules that place every bar, dot and interval."""
    scores, differences = scale(table), difference_scale(table)
    yield f":root{{--zero:{scores.share(0):.2f}%}}"
    for row in table:
        for score in row.scores:
            benchmark = score.benchmark
            placed = {"score": benchmark.score, "base": benchmark.baseline}
            yield _rule(score.id, scores, placed, benchmark.bounds)
            yield _shares(score)
        if row.compared:
            placed = {"score": row.compared.all.difference}
            yield _rule(f"difference-{row.number}", differences, placed, row.compared.all.bounds)


def _rule(name: str, on: Scale, placed: Mapping[str, float | None], bounds: Bounds | None) -> str:
    values = {**placed, "low": bounds.low if bounds else None, "high": bounds.high if bounds else None}
    said = ";".join(f"--{key}:{on.share(at):.2f}%" for key, at in values.items() if at is not None)
    return f"#{name}{{{said}}}"


def _shares(score: Score) -> str:
    """The parts of the bar that shows what became of the rows."""
    planned = score.count("planned") or 1
    shares = ((name, 100 * (score.count(name) or 0) / planned) for name in ("truncated", *NO_SCORE))
    said = ";".join(f"--{name}:{share:.2f}%" for name, share in shares)
    return f"#{score.id}-rows{{{said}}}"


def _values(value: float | None, bounds: Bounds | None) -> list[float]:
    return [*([] if value is None else [value]), *([bounds.low, bounds.high] if bounds else [])]
