"""What a constant answer would score: the floor that a model's score is read against.

Some families are nearly one-sided at a small size (of eight syllogisms seven may be "Yes"), so a score alone
can flatter a model that always says the same. The baseline is the best of the distinct gold answers, given
to every task of the family and scored by the library's own scorer.
"""

from __future__ import annotations

from dataclasses import dataclass

from reasoning_gym_tasks.questions import FamilyQuestions, score_constant


@dataclass(frozen=True)
class Baseline:
    """The best constant answer of a family.

    Attributes:
        answer: The gold answer that scores best when given to every task; the first in order on a tie.
        score: Its mean over the family's tasks, 0 to 1.
    """

    answer: str
    score: float


def majority(drawn: FamilyQuestions, seed: int) -> Baseline | None:
    """The family's baseline over the tasks drawn under `seed`; None when no task has a gold answer."""
    answers = sorted({task.answer for task in drawn.tasks if task.answer is not None})
    scored = [Baseline(answer, score_constant(drawn.family, seed, answer)) for answer in answers]
    return max(scored, key=lambda baseline: baseline.score, default=None)
