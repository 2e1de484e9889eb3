"""A comparison as people read it: lines and a table for the terminal, the same as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from assay.compare.comparison import Compared, Comparison, Flip, Shift
from assay.compare.conditions import told
from assay.console import printable
from assay.record.render import number, plain, present
from assay.record.statistics import Bounds

HEADINGS = ("benchmark", "pairs", "A", "B", "B - A", "95 % interval", "p", "MDE", "gains", "losses")
SHORT_HEADINGS = ("benchmark", "n", "A", "B", "B-A", "95 %", "p", "MDE", "+", "-")

FOOTNOTES = (
    "A, B: sum of rewards / pairs (a failed row counts 0); B - A with its 95 % interval, over questions",
    "p: exact McNemar over questions (graded or repeated rewards: sign-flip permutation), adjusted over the "
    "benchmarks (Holm)",
    "MDE: the smallest difference that would be shown with power 0.8; gains and losses: questions",
)


def show(comparison: Comparison, stderr: bool) -> None:
    """Print lines, table and flips, to stderr when stdout is wanted for JSON."""
    grid = Table(*SHORT_HEADINGS, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in grid.columns:
        column.justify = "left" if column is grid.columns[0] else "right"
        column.no_wrap = True
    for found in comparison.benchmarks:
        name, *rest = cells(found)
        grid.add_row(printable(name), *(cell.replace(" to ", "-to-") for cell in rest))
    below = [printable(line) for found in comparison.benchmarks for line in flipped(found)]
    present(headlines(comparison), grid, [*below, *FOOTNOTES], stderr)


def markdown(comparison: Comparison) -> str:
    """The whole comparison as Markdown."""
    head, *lines = headlines(comparison)
    text = [f"# {plain(head)}", "", *(f"- {plain(line)}" for line in lines), ""]
    text += ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
    text += ["| " + " | ".join(map(plain, cells(found))) + " |" for found in comparison.benchmarks]
    for found in comparison.benchmarks:
        if found.flips:
            text += ["", *(f"- {plain(line)}" for line in flipped(found))]
    return "\n".join([*text, "", *(f"- {note}" for note in FOOTNOTES)]) + "\n"


def headlines(comparison: Comparison) -> list[str]:
    """What must be read before the figures, the verdict first."""
    lines = [f"verdict: {comparison.verdict}"]
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        server = f"server {side.server} (claimed)" if side.server else "the server offers no identity"
        lines.append(f"{letter}: {side.name}, {side.status}; model {side.model}; {server}; {side.run}")
        if side.unsound:
            lines.append(f"{letter} is weakened: {'; '.join(side.unsound)}")
    lines += [f"accepted difference: {said}" for said in told(comparison.accepted)]
    lines += [f"allowed, and alike: {word}" for word in comparison.unused]
    lines += [f"warning: {said}" for said in comparison.warnings]
    for found in comparison.benchmarks:
        lines.append(f"{found.name}: {found.verdict}: {found.reason}")
        lines += [f"{found.name}: {said}" for said in beside(found)]
    return lines


def beside(found: Compared) -> Iterator[str]:
    """What stands beside a benchmark's difference: warnings, shifts, tokens, speed."""
    yield from found.warnings
    for what, estimate in (
        ("with failed and cut pairs never for B", found.kept),
        ("over pairs with a score on both sides", found.both),
    ):
        if estimate is not None:
            yield f"{what}: B - A {estimate.difference:+.3f} ({bounds(estimate.bounds)})"
    if found.questions < found.pairs:
        yield f"{found.pairs} pairs ask {found.questions} distinct questions"
    if found.same is not None:
        yield f"same output, byte for byte: {found.same} of {found.pairs} pairs"
    for what, shift in (("cut", found.truncation), ("failed", found.errors)):
        if shift.a or shift.b:
            yield f"{what}: {_shift(shift)}"
    if found.tokens is not None:
        tokens = found.tokens
        yield (
            f"tokens a rollout: A {tokens.a:.1f}, B {tokens.b:.1f}, ratio {tokens.ratio:.3f} "
            f"({bounds(tokens.bounds)}) over {tokens.pairs} pairs"
        )
    if found.speed is not None:
        speed = found.speed
        yield (
            f"beside it, no measurement: A {speed.a_seconds:.2f} s a rollout (median) and "
            f"{speed.a_tokens_per_s:.1f} tokens/s, B {speed.b_seconds:.2f} s and {speed.b_tokens_per_s:.1f}"
        )


def cells(found: Compared) -> tuple[str, ...]:
    """One row of the table, in the order of `HEADINGS`."""
    return (
        found.name,
        str(found.pairs),
        number(found.a_score),
        number(found.b_score),
        f"{found.all.difference:+.3f}",
        bounds(found.all.bounds),
        f"{found.p_holm:.2g}",
        number(found.mde),
        str(found.signs.gains),
        str(found.signs.losses),
    )


def bounds(value: Bounds | None) -> str:
    """An interval of differences or ratios; "-" where it is not known."""
    return "-" if value is None else f"{value.low:.3f} to {value.high:.3f}"


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
