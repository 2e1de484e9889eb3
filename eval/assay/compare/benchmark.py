"""One benchmark of both runs: measured over its pairs, then judged as one of so many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assay.compare.comparison import Compared, Estimate, Shift, Tokens
from assay.compare.evidence import Differences, Evidence
from assay.compare.flips import flip
from assay.compare.paired import detectable, effect, estimate, signs
from assay.compare.pairing import Pairing
from assay.compare.verdict import LEVEL, asked, decide
from assay.view.view import Benchmark

SHOWN = 5


@dataclass(frozen=True)
class Measured:
    """One benchmark before it is judged, since a verdict depends on how many there are.

    Attributes:
        number: Its number in the pairing.
        benchmark: As A has it.
        evidence: Its pairs, at least one.
        all: See `Compared`.
        kept: See `Compared`.
        both: See `Compared`.
    """

    number: int
    benchmark: Benchmark
    evidence: Evidence
    all: Estimate
    kept: Estimate | None
    both: Estimate | None

    @property
    def p(self) -> float:
        """What is adjusted over the benchmarks."""
        return asked(self.all, self.kept)


def measure(number: int, benchmark: Benchmark, evidence: Evidence) -> Measured:
    """Estimate the differences of a benchmark with at least one pair."""
    partly = 0 < evidence.both.rows < evidence.all.rows
    return Measured(
        number=number,
        benchmark=benchmark,
        evidence=evidence,
        all=_estimate(evidence, evidence.all),
        kept=_estimate(evidence, evidence.kept) if evidence.withheld else None,
        both=_estimate(evidence, evidence.both) if partly else None,
    )


def judge(
    found: Measured, p: float, benchmarks: int, threshold: float, pairing: Pairing, flips: int | None
) -> Compared:
    """The whole result of a benchmark.

    Args:
        found: What was measured.
        p: Its p, adjusted.
        benchmarks: How many are compared.
        threshold: The largest minimum detectable effect with which "no difference shown" is said.
        pairing: Where its rows are.
        flips: How many are listed; None for all.
    """
    evidence, every = found.evidence, found.all
    questions, spread = evidence.all.questions, evidence.all.spread
    table = signs(questions)
    mde = detectable(
        questions,
        spread,
        table.gains + table.losses,
        evidence.span,
        evidence.single(evidence.all),
        LEVEL / benchmarks,
    )
    identical = evidence.same == evidence.all.rows and not evidence.flips
    verdict, reason = decide(every, found.kept, found.both, p, mde, threshold, identical)
    a_score, b_score = evidence.scores
    alone = {side: pairing.alone(side, found.number, SHOWN) for side in ("a", "b")}
    truncation, errors, tokens = evidence.cut.result(), evidence.failed.result(), evidence.tokens()
    return Compared(
        name=found.benchmark.name,
        metric=found.benchmark.metric,
        binary=evidence.binary,
        pairs=evidence.all.rows,
        questions=questions.count,
        alone_a=alone["a"][0],
        alone_b=alone["b"][0],
        alone=tuple(f"{side.upper()}: {name}" for side, (_, names) in alone.items() for name in names),
        a_score=round(a_score, 6),
        b_score=round(b_score, 6),
        all=every,
        kept=found.kept,
        both=found.both,
        signs=table,
        effect=effect(questions, spread),
        relative=round((b_score - a_score) / a_score, 6) if a_score else None,
        odds=round(table.gains / table.losses, 6) if table.losses else None,
        mde=mde,
        p_holm=p,
        verdict=verdict,
        reason=reason,
        same=evidence.same,
        truncation=truncation,
        errors=errors,
        tokens=tokens,
        speed=evidence.speed(),
        warnings=tuple(_warnings(evidence, truncation, errors, tokens, alone["a"][0], alone["b"][0])),
        flips=tuple(flip(pair) for pair in pairing.flips(found.number, flips)),
        flips_total=evidence.flips,
    )


def _estimate(evidence: Evidence, differences: Differences) -> Estimate:
    return estimate(differences.questions, differences.spread, evidence.span, evidence.single(differences))


def _warnings(
    evidence: Evidence, truncation: Shift, errors: Shift, tokens: Tokens | None, alone_a: int, alone_b: int
) -> Iterator[str]:
    if evidence.unsteady:
        yield f"the same output got another reward in {evidence.unsteady} pair(s): the scorer is not steady"
    for what, shift in (("were cut by a limit", truncation), ("have no score", errors)):
        if shift.shifted:
            more, least = ("B", "A") if shift.b > shift.a else ("A", "B")
            counts = f"{shift.a} ({shift.a_share:.1%}) of A, {shift.b} ({shift.b_share:.1%}) of B"
            yield f"more of {more}'s rollouts than of {least}'s {what}: {counts}, p {shift.signs.p:.2g}"
    if tokens is not None and not tokens.within:
        yield (
            f"B's answers have {tokens.ratio:.0%} of A's tokens ({tokens.a:.1f} a rollout, {tokens.b:.1f}), "
            "outside 90 to 110 %: the two speeds are not those of the same work"
        )
    if alone_a or alone_b:
        yield f"rollouts without a partner, in no figure here: {alone_a} of A, {alone_b} of B"
