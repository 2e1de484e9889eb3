"""Several rollouts of a task: how many answers they are, and what may be said from them.

Twenty greedy rollouts on a deterministic server are one answer twenty times. They bring no more evidence than
one: the interval resamples tasks and not rows (`assay.record.statistics`), and neither mean@k nor pass@k is
given for them.

pass@k is the unbiased estimator of Chen et al. 2021 ("Evaluating Large Language Models Trained on Code",
equation 1): the mean over tasks of 1 - C(n-c, k) / C(n, k), with n rollouts of the task and c right ones. It
wants answers that are right or wrong, so it is given only where every reward is 0 or 1; a rollout without a
score counts as wrong, as it does in the score.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

from pydantic import BaseModel, ConfigDict

from assay.record.sample import Sample


class Repeats(BaseModel):
    """What the several rollouts of each task of a family are.

    Attributes:
        rollouts: Planned of each task.
        sampled: Whether the sampling lets them differ: a temperature above 0, and not one seed for all.
        distinct_min: Least distinct outputs that an answered task has; None when nothing was answered.
        distinct_mean: Their mean over answered tasks.
        distinct_max: The most.
        one_answer: Two or more answers of a task were had, and all of each task are the same.
        mean_at_k: The score as mean@k with k = rollouts; None unless the rollouts are samples.
        pass_at_k: pass@k by k (powers of two, and all rollouts); empty unless the rollouts are samples and
            every reward is 0 or 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rollouts: int
    sampled: bool
    distinct_min: int | None
    distinct_mean: float | None
    distinct_max: int | None
    one_answer: bool
    mean_at_k: float | None
    pass_at_k: Mapping[str, float]


class RepeatsTally:
    """The rollouts of tasks, counted task by task.

    Attributes:
        rollouts: The most that a task has.
        answered: Tasks with an answer.
        distinct: Sum of their distinct outputs.
        distinct_min: The least; None before the first.
        distinct_max: The most.
        several: A task has two or more answers.
        seeds: Rollouts of a task have seeds of their own.
        binary: Every reward so far is 0 or 1.
        right: How many tasks had so many rollouts, and so many right ones among them.
    """

    def __init__(self) -> None:
        self.rollouts = 0
        self.answered = 0
        self.distinct = 0
        self.distinct_min: int | None = None
        self.distinct_max: int | None = None
        self.several = False
        self.seeds = False
        self.binary = True
        self.right: Counter[tuple[int, int]] = Counter()

    def add(self, rows: Sequence[Sample]) -> None:
        """All rollouts of a task."""
        self.rollouts = max(self.rollouts, len(rows))
        self.binary = self.binary and all(row.reward in (None, 0.0, 1.0) for row in rows)
        self.right[len(rows), sum(row.reward == 1.0 for row in rows)] += 1
        self.seeds = self.seeds or len({row.seed for row in rows}) > 1
        answered = [row for row in rows if row.reward is not None]
        if not answered:
            return
        # A row whose output nobody recorded is no evidence of sameness: it counts as one of its own.
        distinct = len({row.output_digest or f"row {row.rollout}" for row in answered})
        self.answered += 1
        self.distinct += distinct
        self._between(distinct)
        self.several = self.several or len(answered) > 1

    def merge(self, other: RepeatsTally) -> None:
        """Add other tasks."""
        self.rollouts = max(self.rollouts, other.rollouts)
        self.binary = self.binary and other.binary
        self.right.update(other.right)
        self.answered += other.answered
        self.distinct += other.distinct
        self.several = self.several or other.several
        self.seeds = self.seeds or other.seeds
        for value in (other.distinct_min, other.distinct_max):
            if value is not None:
                self._between(value)

    def result(self, sampled: bool, mean: float) -> Repeats | None:
        """What the rollouts are; None where each task has one.

        Args:
            sampled: Whether the sampling lets them differ (`assay.record.asked.may_differ`).
            mean: The score.
        """
        if self.rollouts < 2:
            return None
        one_answer = self.several and self.distinct_max == 1
        real = sampled and not one_answer and self.answered > 0
        return Repeats(
            rollouts=self.rollouts,
            sampled=sampled,
            distinct_min=self.distinct_min,
            distinct_mean=round(self.distinct / self.answered, 3) if self.answered else None,
            distinct_max=self.distinct_max,
            one_answer=one_answer,
            mean_at_k=round(mean, 6) if real else None,
            pass_at_k=pass_at(self.right) if real and self.binary else {},
        )

    def _between(self, distinct: int) -> None:
        self.distinct_min = distinct if self.distinct_min is None else min(self.distinct_min, distinct)
        self.distinct_max = distinct if self.distinct_max is None else max(self.distinct_max, distinct)


def pass_at(right: Mapping[tuple[int, int], int]) -> dict[str, float]:
    """pass@k over tasks, by k: powers of two, and as many as each task has.

    Args:
        right: How many tasks had so many rollouts, and so many right ones among them.
    """
    tasks = sum(right.values())
    fewest = min(count for count, _ in right)
    powers = [2**power for power in range(fewest.bit_length()) if 2**power < fewest]
    return {
        str(k): round(
            float(sum(Fraction(estimate(n, c, k)) * times for (n, c), times in right.items()) / tasks), 6
        )
        for k in [*powers, fewest]
    }


def estimate(n: int, c: int, k: int) -> float:
    """The chance that k of n rollouts, drawn without putting back, hold one of the c right ones."""
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
