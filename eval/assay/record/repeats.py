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
from collections.abc import Mapping, Sequence

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


def repeats_of(samples: Sequence[Sample], sampled: bool) -> Repeats | None:
    """What the rollouts of a family are; None where each task has one.

    Args:
        samples: Every planned rollout of the family, each task as often as the others.
        sampled: Whether the sampling lets them differ (`assay.record.asked.may_differ`).
    """
    by_task: dict[str, list[Sample]] = {}
    for row in samples:
        by_task.setdefault(row.task_key, []).append(row)
    rollouts = max(len(rows) for rows in by_task.values())
    if rollouts < 2:
        return None
    answered = [[row for row in rows if row.reward is not None] for rows in by_task.values()]
    answered = [rows for rows in answered if rows]
    # A row whose output nobody recorded is no evidence of sameness: it counts as one of its own.
    distinct = [len({row.output_digest or f"row {row.rollout}" for row in rows}) for rows in answered]
    one_answer = any(len(rows) > 1 for rows in answered) and max(distinct, default=0) == 1
    real = sampled and not one_answer and bool(answered)
    rewards = [[row.reward or 0.0 for row in rows] for rows in by_task.values()]
    mean = math.fsum(value for rows in rewards for value in rows) / len(samples)
    return Repeats(
        rollouts=rollouts,
        sampled=sampled,
        distinct_min=min(distinct, default=None),
        distinct_mean=round(sum(distinct) / len(distinct), 3) if distinct else None,
        distinct_max=max(distinct, default=None),
        one_answer=one_answer,
        mean_at_k=round(mean, 6) if real else None,
        pass_at_k=pass_at(rewards) if real and _binary(rewards) else {},
    )


def pass_at(rewards: Sequence[Sequence[float]]) -> dict[str, float]:
    """pass@k over tasks, by k, for rewards of 0 and 1; every task has the same number of them."""
    count = len(rewards[0])
    powers = [2**power for power in range(count.bit_length()) if 2**power < count]
    return {
        str(k): round(math.fsum(estimate(len(task), _right(task), k) for task in rewards) / len(rewards), 6)
        for k in [*powers, count]
    }


def estimate(n: int, c: int, k: int) -> float:
    """The chance that k of n rollouts, drawn without putting back, hold one of the c right ones."""
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def _right(rewards: Sequence[float]) -> int:
    return sum(reward == 1.0 for reward in rewards)


def _binary(rewards: Sequence[Sequence[float]]) -> bool:
    return all(reward in (0.0, 1.0) for task in rewards for reward in task)
