"""What must be alike for two results to be compared, and which differences somebody accepted by name.

A run's own words for its conditions (`Benchmark.conditions`) are held against the other's, and so are the
rows: an equal task key that asks another question, or an equal question in another prompt, is a difference
whatever the conditions say. The server and the model are what is compared and stand in no condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from assay.compare.comparison import Difference
from assay.compare.pairing import Pair
from assay.errors import ConfigurationError
from assay.view.view import Benchmark

METRIC = "evaluator.metric"
QUESTIONS = "pairs.questions"
PROMPTS = "pairs.prompts"
SHOWN = 120
LISTED = 3


class UnlikeError(ConfigurationError):
    """The two runs cannot be compared as they are (exit 2).

    Attributes:
        differences: Every difference that nobody accepted.
    """

    def __init__(self, differences: Sequence[Difference], next: str) -> None:
        names = sorted({found.name for found in differences})
        super().__init__(f"the runs are not alike: {', '.join(names)}", "; ".join(told(differences)), next)
        self.differences = tuple(differences)


class Unlike:
    """What pairs of a benchmark differ in and must not: counted as they pass, the first of a kind kept."""

    def __init__(self) -> None:
        self._pairs: Counter[str] = Counter()
        self._first: dict[str, tuple[str, str, str]] = {}

    def add(self, pair: Pair) -> None:
        """Look at one pair; a prompt that was never sent is no other prompt."""
        self._hold(QUESTIONS, pair.task_key, pair.a.cluster, pair.b.cluster)
        self._hold(PROMPTS, pair.task_key, pair.a.prompt, pair.b.prompt)

    def differences(self, benchmark: str) -> Iterator[Difference]:
        """What was found, with its first example."""
        for name, (key, a, b) in self._first.items():
            of = f"in {self._pairs[name]} pair(s), the first of task {key}"
            yield Difference(name=name, benchmark=benchmark, a=f"{a} {of}", b=b)

    def _hold(self, name: str, key: str, a: str | None, b: str | None) -> None:
        if a is None or b is None or a == b:
            return
        self._pairs[name] += 1
        self._first.setdefault(name, (key, a, b))


def differences(a: Benchmark, b: Benchmark) -> Iterator[Difference]:
    """Every condition of a benchmark that the two runs do not share, by name."""
    ours, theirs = dict(a.conditions), dict(b.conditions)
    # Where nothing was answered nobody names the metric, which makes it no other one.
    if a.metric is not None and b.metric is not None:
        ours[METRIC], theirs[METRIC] = a.metric, b.metric
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            yield Difference(name=name, benchmark=a.name, a=ours.get(name), b=theirs.get(name))


def allowed(name: str, allow: Iterable[str]) -> str | None:
    """The word that accepts the difference: its name, a part of it (`data`), or a pattern (`data.*`)."""
    return next(
        (word for word in allow if name == word or name.startswith(f"{word}.") or fnmatchcase(name, word)),
        None,
    )


def told(differences: Iterable[Difference]) -> list[str]:
    """Each difference once, with the first of the benchmarks that it stands in."""
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    for difference in differences:
        found.setdefault((difference.name, difference.a, difference.b), []).append(difference.benchmark)
    return [
        f"{name}: A {_shown(a)}, B {_shown(b)} ({_listed(benchmarks)})"
        for (name, a, b), benchmarks in found.items()
    ]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _shown(value: str | None) -> str:
    if value is None:
        return "has none"
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
