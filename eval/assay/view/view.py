"""What comparison, report and export read of a run, whichever evaluator asked and however it was recorded.

A view never judges and never asks: the audit judges, the run asked. It gives the recorded rows (never held in
memory together: a run may have a million), the conditions that they were obtained under, by name, and a row's
whole exchange from the evaluator's own record, where the run still has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from assay.record.sample import Sample
from assay.record.statistics import Bounds

Kind = Literal["profile", "suite", "export"]
Basis = Literal["measured", "recomputed", "claimed"]


@dataclass(frozen=True)
class Fact:
    """Something that a reader of a result should know of its run.

    Attributes:
        name: What it is, e.g. "egress", "worktree", "server", "signature".
        value: What the record says, for a reader.
        basis: Whether the run measured it, anybody can compute it again from the record, or it is the word of
            the operator or of the server.
        sound: False where it weakens the result: a dirty worktree, a network that was not cut, no signature.
    """

    name: str
    value: str
    basis: Basis
    sound: bool = True


@dataclass(frozen=True)
class Benchmark:
    """What has a score of its own: a family of a profile's entry, or a job of a suite.

    Attributes:
        name: `<entry>/<family>`, or the job's id.
        entry: `Sample.entry` of its rows.
        family: `Sample.family` of its rows; None where every family of the entry belongs to it.
        metric: What a reward is, by the evaluator's name for it; None where nobody says.
        binary: Every reward is 0 or 1; None where nothing was answered.
        score: Sum of rewards / planned; None where nothing was answered.
        bounds: The interval of the score.
        confidence: Of the interval.
        baseline: Score of the best constant answer; None where nobody tells.
        counts: planned, scored, errored, truncated, missing, empty, thought_only, unparsed.
        conditions: What another run must share for the two to be compared, by dotted name:
            `data.*`, `template.*`, `sampling.*`, `limits.*`, `evaluator.*`, `sandbox.*`, `tasks.*`. Never the
            server or the model: these are what is compared.
    """

    name: str
    entry: str
    family: str | None
    metric: str | None
    binary: bool | None
    score: float | None
    bounds: Bounds | None
    confidence: float
    baseline: float | None
    counts: Mapping[str, int | None]
    conditions: Mapping[str, str]


@dataclass(frozen=True)
class Message:
    """One message of an exchange.

    Attributes:
        role: system, user, assistant, tool; "tools" tells what the model may call.
        text: Its visible text; an image is told in words.
        thinking: What the model thought apart from it; None where it did not.
        calls: Tool calls, each as JSON.
    """

    role: str
    text: str
    thinking: str | None = None
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """One reward of a rollout: its name, its score, its weight in the sum."""

    name: str
    score: float | None
    weight: float | None = None


@dataclass(frozen=True)
class Exchange:
    """What was said in a rollout, and how it was judged, as the evaluator's own record has it.

    Attributes:
        messages: In their order, the model's answers among them.
        target: The answer that the task wants, where the record tells.
        parts: The rewards.
        scorer: What the scorer put out, as text; None where it put out nothing.
        error: The whole error; None where there was none.
        started: Seconds from the first rollout's beginning to this one's; None where nobody measured.
        spans: Named spans of time in seconds, in their order.
    """

    messages: tuple[Message, ...] = ()
    target: str | None = None
    parts: tuple[Part, ...] = ()
    scorer: str | None = None
    error: str | None = None
    started: float | None = None
    spans: Mapping[str, float] = field(default_factory=dict)


class View(Protocol):
    """A run, read.

    Attributes:
        run: Its directory.
        kind: How it was recorded.
        name: The profile's or suite's.
        description: What it is.
        status: done, partial, failed, cancelled.
        started: When the run began, ISO 8601; None where nobody tells.
        ended: When it ended.
        model: Which model was asked for, by its name; several are joined by commas.
        server: Fingerprints as the servers claim them.
    """

    run: Path
    kind: Kind
    name: str
    description: str
    status: str
    started: str | None
    ended: str | None
    model: str
    server: str | None

    def facts(self) -> tuple[Fact, ...]:
        """What else a reader should know: signature, worktree, environment, egress, pins, notes."""

    def benchmarks(self) -> tuple[Benchmark, ...]:
        """What has a score, in the run's order."""

    def samples(self) -> Iterator[Sample]:
        """The recorded rows, in the order of `samples.jsonl`.

        Raises:
            VerificationError: a row cannot be read.
        """

    def exchanges(self) -> Iterator[tuple[Sample, Exchange | None]]:
        """Every row with its exchange; None where the run has no record of it. One pass over each record."""

    def exchange(self, sample: Sample) -> Exchange | None:
        """One row's exchange."""

    def summary(self) -> Mapping[str, Any]:
        """`summary.json` as it stands."""
