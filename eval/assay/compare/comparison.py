"""What two runs come to beside each other: `assay/comparison/v1`, from their rows and conditions alone.

Everything stands for one benchmark; there is no number over several of them, only the gravest of their words.
A is what stood before (the reference), B is what changed; a difference is B's score minus A's.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from assay.record.sample import Status
from assay.record.statistics import CONFIDENCE, Bounds

SCHEMA: Literal["assay/comparison/v1"] = "assay/comparison/v1"
POWER = 0.8
# The largest minimum detectable effect at which "no difference shown" still says something: five points.
THRESHOLD = 0.05

Verdict = Literal["better", "worse", "no difference shown", "too few samples"]
Test = Literal["mcnemar-exact", "sign-flip", "normal", "none"]
Bounded = Literal["bootstrap-percentile", "clustered-normal", "exact", "none"]


class Value(BaseModel):
    """A part of the document: frozen, without NaN, and no key that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Side(Value):
    """One of the two runs.

    Attributes:
        run: Its directory.
        name: The profile's or suite's.
        kind: How it was recorded: profile, suite, export.
        status: done, partial, failed, cancelled.
        started: When it began; None where nobody tells.
        model: The name that was asked for.
        server: Fingerprints as the servers claim them.
        unsound: What weakens its results, one sentence each.
    """

    run: str
    name: str
    kind: str
    status: str
    started: str | None
    model: str
    server: str | None
    unsound: tuple[str, ...]


class Difference(Value):
    """A condition that the two runs do not share.

    Attributes:
        name: Its dotted name, e.g. `sampling.temperature`.
        benchmark: Of which benchmark.
        a: What A had; None where A has no such condition.
        b: What B had.
    """

    name: str
    benchmark: str
    a: str | None
    b: str | None


class Signs(Value):
    """In how many questions one side had more than the other, and what a fair coin says to that.

    Attributes:
        gains: Questions in which B has more.
        losses: Questions in which A has more.
        ties: Questions in which both have as much.
        p: Two-sided exact binomial p of gains against losses: McNemar's test over questions (a question's
            several rollouts are one sign).
    """

    gains: int
    losses: int
    ties: int
    p: float


class Shift(Value):
    """How often something happened on each side, over the same pairs.

    Attributes:
        a: Pairs in which it happened to A.
        b: Pairs in which it happened to B.
        a_share: Of the pairs.
        b_share: Of the pairs.
        signs: Paired: questions to which it happened more often in B (`gains`) or in A (`losses`).
        shifted: The paired test finds a difference (p <= 0.05, for this benchmark alone).
    """

    a: int
    b: int
    a_share: float
    b_share: float
    signs: Signs
    shifted: bool


class Tokens(Value):
    """Tokens generated a rollout, over pairs in which both sides have a score and tell their tokens.

    Attributes:
        pairs: How many pairs.
        a: Mean of A.
        b: Mean of B.
        ratio: B's over A's.
        bounds: 95 % interval of the ratio, over questions; None where it cannot be given.
        within: The ratio is within 0.9 to 1.1 (MLPerf's band): outside it speed is not comparable.
    """

    pairs: int
    a: float
    b: float
    ratio: float
    bounds: Bounds | None
    within: bool


class Speed(Value):
    """Seconds and tokens of the same pairs, as the evaluators recorded them. No measurement of a server.

    Attributes:
        pairs: Pairs in which both sides have a score and tell seconds and tokens.
        a_seconds: Median of a rollout of A's: the model's calls, or the whole where these are not told.
        b_seconds: Of B's.
        a_tokens_per_s: All tokens over all seconds of A's rollouts.
        b_tokens_per_s: Of B's.
    """

    pairs: int
    a_seconds: float
    b_seconds: float
    a_tokens_per_s: float
    b_tokens_per_s: float


class Half(Value):
    """One side of a flip.

    Attributes:
        reward: None unless it has a score.
        status: What became of the rollout.
        link: `record:line` below the run directory; None where no record holds it.
        text: The last message of the model; None unless it was asked for and the run still has it.
    """

    reward: float | None
    status: Status
    link: str | None
    text: str | None = None


class Flip(Value):
    """A pair with other rewards: a loss where A's is higher, else a gain."""

    task_key: str
    rollout: int
    family: str
    change: float
    a: Half
    b: Half


class Estimate(Value):
    """A difference of mean rewards over pairs.

    Attributes:
        difference: B's mean minus A's.
        bounds: Its 95 % interval, over questions; None where it cannot be given.
        method: How: `bootstrap-percentile` (pairs cluster bootstrap), `clustered-normal`, `exact`.
        p: Two-sided p of "no difference".
        test: Which test gave it.
    """

    difference: float
    bounds: Bounds | None
    method: Bounded
    p: float
    test: Test


class Compared(Value):
    """One benchmark of both runs.

    Attributes:
        name: `<entry>/<family>`, or the job's id.
        metric: What a reward is, by the evaluator's name for it.
        binary: Every reward of the pairs is 0 or 1.
        pairs: Rollouts that both runs planned, by task key and rollout.
        questions: Distinct questions among them: what is resampled.
        alone_a: Rollouts of A without a partner.
        alone_b: Rollouts of B without a partner.
        alone: Some of them by name, at most a few.
        a_score: Sum of A's rewards over the pairs / pairs; a failed row counts 0.
        b_score: The same of B.
        all: The difference over all pairs.
        kept: The difference with pairs in which a row failed or was cut counted against B alone; None where
            no such pair favours B. A verdict "better" needs both.
        both: The difference over pairs with a score on both sides; None where these are all or none.
        signs: McNemar's table over questions.
        effect: Difference over the standard deviation of the questions' differences (Cohen's d_z); None where
            nothing differs or it cannot be given.
        relative: Difference / A's score; None where that is 0.
        odds: Gains over losses; None without losses.
        mde: The smallest difference that so many questions of this spread show with power 0.8, at the level
            that this comparison asks of one benchmark; None where no difference could be shown.
        p_holm: p of the verdict, adjusted over the benchmarks (Holm 1979).
        verdict: See `assay.compare.verdict`.
        reason: Why, in one sentence.
        same: Pairs with the same output, byte for byte; None where no record tells.
        truncation: A limit cut the answer.
        errors: The rollout failed or never happened.
        tokens: None where nobody tells.
        speed: None where nobody tells.
        warnings: What else must be read with it, one sentence each.
        flips: Pairs with other rewards, losses first, the largest change first.
        flips_total: How many there are, those not listed included.
    """

    name: str
    metric: str | None
    binary: bool
    pairs: int
    questions: int
    alone_a: int
    alone_b: int
    alone: tuple[str, ...]
    a_score: float
    b_score: float
    all: Estimate
    kept: Estimate | None
    both: Estimate | None
    signs: Signs
    effect: float | None
    relative: float | None
    odds: float | None
    mde: float | None
    p_holm: float
    verdict: Verdict
    reason: str
    same: int | None
    truncation: Shift
    errors: Shift
    tokens: Tokens | None
    speed: Speed | None
    warnings: tuple[str, ...]
    flips: tuple[Flip, ...]
    flips_total: int


class Comparison(Value):
    """The whole of `assay compare`.

    Attributes:
        schema_version: Of this form.
        a: The run that stood before.
        b: The run that is held against it.
        verdict: worse where any benchmark is; else better where any is; else too few samples where any has
            too few; else no difference shown.
        accepted: Differences of conditions that were allowed.
        unused: What was allowed and did not differ.
        only_a: Benchmarks that only A has.
        only_b: Benchmarks that only B has.
        benchmarks: In A's order.
        warnings: What must be read first.
        confidence: Of every interval.
        power: Of every minimum detectable effect.
        threshold: The largest minimum detectable effect with which "no difference shown" is said.
    """

    schema_version: Literal["assay/comparison/v1"] = SCHEMA
    a: Side
    b: Side
    verdict: Verdict
    accepted: tuple[Difference, ...]
    unused: tuple[str, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    benchmarks: tuple[Compared, ...]
    warnings: tuple[str, ...]
    confidence: float = CONFIDENCE
    power: float = POWER
    threshold: float
