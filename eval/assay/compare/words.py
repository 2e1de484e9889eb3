"""What a comparison says in plain sentences, shared by the terminal and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.compare.comparison import Compared, Comparison, Flip, Shift
from assay.compare.conditions import told
from assay.record.statistics import Bounds


def headlines(comparison: Comparison) -> list[str]:
    """What must be read before the figures, the verdict first."""
    lines = [f"verdict: {comparison.verdict}"]
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        server = f"server {side.server} (claimed)" if side.server else "the server offers no identity"
        lines.append(
            f"{letter}: {side.name}, {side.status}; model {side.model or 'none'}; {server}; {side.run}"
        )
    a, b = comparison.a.unsound, comparison.b.unsound
    for letter, unsound in (("A and B", a),) if a == b else (("A", a), ("B", b)):
        if unsound:
            lines.append(f"weakens {letter}: {'; '.join(unsound)}")
    lines += [f"accepted difference: {said}" for said in told(comparison.accepted)]
    lines += [f"allowed, and alike: {word}" for word in comparison.unused]
    lines += [f"warning: {said}" for said in comparison.warnings]
    return lines


def reasons(benchmarks: Sequence[Compared]) -> list[str]:
    """Why the benchmarks have their words, once for all that share it."""
    found: dict[tuple[str, str], list[str]] = {}
    for compared in benchmarks:
        found.setdefault((compared.verdict, compared.reason), []).append(compared.name)
    alike = len(found) == 1 < len(benchmarks)
    return [
        f"{verdict}: {reason} ({'all of them' if alike else ', '.join(names)})"
        for (verdict, reason), names in found.items()
    ]


def same_output(benchmarks: Sequence[Compared]) -> Iterator[str]:
    """How many answers are the same bytes, over all benchmarks that tell."""
    told = [(found.same, found.pairs) for found in benchmarks if found.same is not None]
    if told:
        same, pairs = (sum(each) for each in zip(*told, strict=True))
        yield f"same output, byte for byte: {same} of {pairs} pairs"


def noteworthy(found: Compared) -> Iterator[str]:
    """What must be read with a benchmark's difference: nothing where there is nothing."""
    yield from found.warnings
    for what, estimate in (
        ("with failed and cut pairs never for B", found.kept),
        ("over pairs with a score on both sides", found.both),
    ):
        if estimate is not None:
            yield f"{what}: B - A {estimate.difference:+.3f} {bounds(estimate.bounds, '+')}"
    if found.questions < found.pairs:
        yield f"{found.pairs} pairs ask {found.questions} distinct questions"
    for what, shift in (("cut by a limit", found.truncation), ("without a score", found.errors)):
        if (shift.a or shift.b) and not shift.shifted:
            yield f"{what}: {_shift(shift)}"
    tokens = found.tokens
    if tokens is None or tokens.bounds is None or not tokens.within:
        return
    if not tokens.bounds.low <= 1 <= tokens.bounds.high:
        yield lengths(found)


def lengths(found: Compared) -> str:
    """Tokens of a rollout on both sides, of a benchmark that tells them."""
    tokens = found.tokens
    if tokens is None:
        return "tokens a rollout: nobody tells"
    ratio = f"{tokens.ratio:.3f} {bounds(tokens.bounds)}"
    return f"tokens a rollout: A {tokens.a:.1f}, B {tokens.b:.1f}, ratio {ratio}"


def speeds(benchmarks: Sequence[Compared], names: Sequence[str]) -> Iterator[str]:
    """Speed beside it, one line for all benchmarks that tell."""
    told = [
        f"{name} {found.speed.a_seconds:.2f} s, {found.speed.a_tokens_per_s:.1f}/s to "
        f"{found.speed.b_seconds:.2f} s, {found.speed.b_tokens_per_s:.1f}/s"
        for name, found in zip(names, benchmarks, strict=True)
        if found.speed is not None
    ]
    if told:
        yield (
            "speed (as the rows tell, machine not controlled), seconds a rollout and tokens/s, A to B: "
            + "; ".join(told)
        )


def flipped(found: Compared) -> Iterator[str]:
    """The flips that are listed, each with the records that hold both answers."""
    for flip in found.flips:
        what = "loss" if flip.change < 0 else "gain"
        yield (
            f"{found.name}: {what}: {flip.task_key}, rollout {flip.rollout}: "
            f"A {_half(flip, 'a')}, B {_half(flip, 'b')}"
        )
    if len(found.flips) < found.flips_total:
        yield f"{found.name}: {len(found.flips)} of {found.flips_total} flips listed (--flips N lists more)"


def bounds(value: Bounds | None, sign: str = "") -> str:
    """An interval of ratios, or with the sign "+" of differences; "-" where it is not known."""
    return "-" if value is None else f"[{value.low:{sign}.3f}, {value.high:{sign}.3f}]"


def _half(flip: Flip, side: str) -> str:
    half = flip.a if side == "a" else flip.b
    reward = half.status if half.reward is None else f"{half.reward:g}"
    cut = " (cut)" if half.status == "truncated" else ""
    return f"{reward}{cut} at {half.link or 'no record'}"


def _shift(shift: Shift) -> str:
    return (
        f"A {shift.a} ({shift.a_share:.1%}), B {shift.b} ({shift.b_share:.1%}); more often in B in "
        f"{shift.signs.gains} questions, in A in {shift.signs.losses}, p {shift.signs.p:.2g}"
    )
