"""Two views in, one comparison out: what `assay compare` and a report of two runs both call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from assay.compare.benchmark import judge, measure
from assay.compare.comparison import THRESHOLD, Compared, Comparison, Difference, Side
from assay.compare.conditions import Unlike, UnlikeError, allowed, differences
from assay.compare.evidence import Evidence
from assay.compare.flips import with_texts
from assay.compare.paired import holm
from assay.compare.pairing import Letter, Pairing, Places
from assay.compare.verdict import gravest
from assay.errors import ConfigurationError
from assay.view.view import Benchmark, View

FLIPS = 20


def compare(
    a: View,
    b: View,
    allow: Sequence[str] = (),
    threshold: float = THRESHOLD,
    flips: int | None = FLIPS,
    texts: bool = False,
) -> Comparison:
    """Hold one run against another.

    Args:
        a: The run that stood before.
        b: What is held against it.
        allow: Conditions that may differ: their dotted names, parts of them, or patterns.
        threshold: The largest minimum detectable effect with which "no difference shown" is said.
        flips: How many flips of each benchmark are listed; None for all.
        texts: Whether the listed flips have what the models said, as far as the runs still have it.

    Raises:
        UnlikeError: they differ in what nobody accepted.
        ConfigurationError: they have no benchmark, or no rollout, in common.
        VerificationError: a row of either cannot be read, or stands there twice.
    """
    views: Mapping[Letter, View] = {"a": a, "b": b}
    ours, theirs = ({found.name: found for found in view.benchmarks()} for view in (a, b))
    common = [name for name in ours if name in theirs]
    if not common:
        raise _nothing("benchmark", f"A has {_listed(ours)}; B has {_listed(theirs)}")
    places: Mapping[Letter, Places] = {
        "a": Places([ours[name] for name in common]),
        "b": Places([theirs[name] for name in common]),
    }
    with ExitStack() as stack:
        pairing = stack.enter_context(Pairing())
        for side, view in views.items():
            pairing.read(side, view, places[side])
        unlike = [found for name in common for found in differences(ours[name], theirs[name])]
        measured = []
        for number, name in enumerate(common):
            evidence, other = stack.enter_context(Evidence()), Unlike()
            for pair in pairing.pairs(number):
                evidence.add(pair)
                other.add(pair)
            unlike += other.differences(name)
            if evidence.all.rows:
                measured.append((number, ours[name], evidence))
        accepted = _accepted(unlike, allow, a, b)
        if not measured:
            raise _nothing("rollout", "no task's rollout stands in both")
        estimated = [measure(*found) for found in measured]
        adjusted = holm([found.p for found in estimated])
        compared = tuple(
            judge(found, p, len(estimated), threshold, pairing, flips)
            for found, p in zip(estimated, adjusted, strict=True)
        )
    if texts:
        compared = with_texts(compared, views, places)
    return Comparison(
        a=_side(a),
        b=_side(b),
        verdict=gravest([found.verdict for found in compared]),
        accepted=accepted,
        unused=tuple(word for word in allow if not any(allowed(found.name, [word]) for found in unlike)),
        only_a=tuple(name for name in ours if name not in theirs),
        only_b=tuple(name for name in theirs if name not in ours),
        benchmarks=compared,
        warnings=tuple(_warnings(a, b, ours, theirs, compared)),
        threshold=threshold,
    )


def _accepted(unlike: Sequence[Difference], allow: Sequence[str], a: View, b: View) -> tuple[Difference, ...]:
    refused = [found for found in unlike if allowed(found.name, allow) is None]
    if refused:
        names = sorted({found.name for found in refused})
        words = " ".join(f"--allow {name}" for name in [*allow, *names])
        raise UnlikeError(
            refused, f"assay compare {a.run} {b.run} {words} sets them beside each other all the same"
        )
    return tuple(unlike)


def _side(view: View) -> Side:
    return Side(
        run=str(view.run),
        name=view.name,
        kind=view.kind,
        status=view.status,
        started=view.started,
        model=view.model,
        server=view.server,
        unsound=tuple(f"{fact.name}: {fact.value}" for fact in view.facts() if not fact.sound),
    )


def _warnings(
    a: View,
    b: View,
    ours: Mapping[str, Benchmark],
    theirs: Mapping[str, Benchmark],
    compared: Sequence[Compared],
) -> Iterator[str]:
    for letter, view in (("A", a), ("B", b)):
        if view.status != "done":
            yield f"{letter} is {view.status}: its rows without a score count 0"
    for letter, alone in (("A", ours.keys() - theirs.keys()), ("B", theirs.keys() - ours.keys())):
        if alone:
            yield f"only {letter} has {_listed(sorted(alone))}"
    empty = [name for name in ours if name in theirs and name not in {found.name for found in compared}]
    if empty:
        yield f"no rollout in common: {_listed(empty)}"
    if a.server is not None and a.server == b.server:
        yield f"both servers claim to be {a.server}: the same build with the same model"


def _nothing(noun: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the two runs have no {noun} in common", why, "compare two runs of one profile, or of one suite"
    )


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(names) or "none"
