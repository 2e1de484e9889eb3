"""Which of four words a benchmark gets, and why; the rule is in docs/formats.md.

- **worse**: the p over all pairs, adjusted over the benchmarks, is at most 0.05, and the interval lies below
  0.
- **better**: the same above 0, and again where a pair in which a row failed or was cut can count against B
  and never for it (`kept`): a reference that failed makes nobody better, nor does an answer that a limit cut.
- **too few samples**: neither, and a difference as large as the threshold would likely not have been shown.
- **no difference shown**: neither, and it would; or every pair has the same output, byte for byte.

A failed row counts 0 on both sides, as in every score: what was not measured does not pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.compare.comparison import Estimate, Verdict
from assay.record.statistics import CONFIDENCE

LEVEL = 1 - CONFIDENCE
GRAVEST: tuple[Verdict, ...] = ("worse", "better", "too few samples", "no difference shown")


def asked(every: Estimate, kept: Estimate | None) -> float:
    """The p that the verdict asks: of both conditions where "better" needs both."""
    return every.p if every.difference <= 0 or kept is None else max(every.p, kept.p)


def decide(
    every: Estimate,
    kept: Estimate | None,
    both: Estimate | None,
    p: float,
    mde: float | None,
    threshold: float,
    identical: bool,
) -> tuple[Verdict, str]:
    """The word for one benchmark, and why in a sentence.

    Args:
        every: Over all pairs.
        kept: With pairs that failed or were cut never for B; None where that changes nothing.
        both: Over pairs with a score on both sides; None where these are all or none.
        p: Of `asked`, adjusted over the benchmarks.
        mde: The smallest difference that could have been shown; None where none could.
        threshold: The largest one with which "no difference shown" is said.
        identical: Every pair has the same output, byte for byte, and the same reward.
    """
    if identical:
        return "no difference shown", "every answer is the same bytes"
    if p <= LEVEL and _beyond(every) < 0:
        if both is not None and _beyond(both) >= 0:
            return "worse", "B fell short, and it did in rollouts that have no score"
        return "worse", "B's rewards fell short of A's by more than chance explains"
    if p <= LEVEL and _beyond(every) > 0 and (kept is None or _beyond(kept) > 0):
        return "better", "B's rewards exceed A's by more than chance explains"
    withheld = every.p <= LEVEL and _beyond(every) > 0 and (kept is not None and _beyond(kept) <= 0)
    said = "what B gained lies in pairs that failed or were cut, which count for nobody; " if withheld else ""
    if mde is None:
        return "too few samples", f"{said}so few questions can show no difference at all"
    if mde > threshold:
        return (
            "too few samples",
            f"{said}only a difference larger than {threshold:g} would likely be shown (MDE)",
        )
    return "no difference shown", f"{said}a difference of {threshold:g} would likely have been shown (MDE)"


def gravest(verdicts: Sequence[Verdict]) -> Verdict:
    """The word for all benchmarks: the first of `GRAVEST` that any has."""
    return next(word for word in GRAVEST if word in verdicts)


def _beyond(found: Estimate) -> int:
    """On which side of 0 the whole interval lies: -1, 1, or 0 where it holds 0 or is not known."""
    if found.bounds is None:
        return 0
    return (found.bounds.low > 0) - (found.bounds.high < 0)
