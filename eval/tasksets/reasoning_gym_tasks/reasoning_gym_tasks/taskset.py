"""The Verifiers side: tasks whose prompt is the library's text and whose reward is the library's score.

A task's data carries all that its question was drawn from, so that a recorded trace can be scored again
without the configuration: the generator is run once more and must give the question with the same digest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from pydantic import model_validator
from pydantic_config import BaseConfig

from reasoning_gym_tasks.questions import FamilyQuestions, Question, draw, score
from reasoning_gym_tasks.selection import Family, Selection

MESSAGES = {"user": vf.UserMessage, "assistant": vf.AssistantMessage}


class FamilyConfig(BaseConfig):
    """One `[[env.taskset.families]]` table; every key is required."""

    name: str
    """The generator's registered name in reasoning-gym."""
    size: int
    """Tasks to draw."""
    parameters: dict[str, Any]
    """Every field of the generator's configuration but its seed and size."""


class ReasoningGymConfig(vf.TasksetConfig):
    """The table `[env.taskset]`; every key is required (see `selection.Selection`)."""

    prompt: str
    """Name in the library's `SYSTEM_PROMPTS`."""
    seed: int
    """Seed of the tasks."""
    example_seed: int
    """Seed of the worked examples."""
    hash_seed: int
    """PYTHONHASHSEED of the process that generates."""
    n_shot: int
    """Worked examples before each task, as earlier turns."""
    families: list[FamilyConfig]
    """Generators, in the order their tasks are asked."""

    def selection(self) -> Selection:
        """The same choice as the value the drawing works on; SelectionError where the library refuses it."""
        families = tuple(Family(entry.name, entry.size, entry.parameters) for entry in self.families)
        return Selection(self.prompt, self.seed, self.example_seed, self.hash_seed, self.n_shot, families)

    @model_validator(mode="after")
    def _accepted_by_the_library(self) -> ReasoningGymConfig:
        self.selection()
        return self


class ReasoningGymData(vf.TaskData):
    """What one task asks and where it was drawn from."""

    family: str
    index: int
    """Index in the generator, from 0."""
    seed: int
    size: int
    parameters: dict[str, Any]
    answer: str | None
    """The library's gold answer, where it has one; never part of the prompt."""
    question_digest: str
    duplicate_of: str | None
    """Key of the first task with the same question."""
    duplicates: int
    """Tasks of the family with this very question, itself included."""


class ReasoningGymTask(vf.Task[ReasoningGymData, vf.State, vf.TaskConfig]):
    """One question; scored in the evaluator's own process, without the sandbox."""

    @property
    def key(self) -> str:
        """`family/index`: stable whatever else is selected."""
        return f"{self.data.family}/{self.data.index}"

    @vf.reward
    async def answer_score(self, trace: vf.Trace) -> float:
        """The library's `score_answer` of what its `extract_answer` finds in the reply, 0 to 1."""
        return self._verdict(trace)[1]

    @vf.metric
    async def answered(self, trace: vf.Trace) -> float:
        """1 when the library's `extract_answer` found an answer in the reply, else 0."""
        return float(self._verdict(trace)[0])

    def _verdict(self, trace: vf.Trace) -> tuple[bool, float]:
        data = self.data
        family = Family(data.family, data.size, data.parameters)
        return score(family, data.seed, data.index, data.question_digest, trace.last_reply)


class ReasoningGymTaskset(vf.Taskset[ReasoningGymTask, ReasoningGymConfig]):
    """The selection's tasks, family by family, each with its family's worked examples as earlier turns."""

    def load(self) -> Iterator[ReasoningGymTask]:
        """Draw everything first, so that a refusal comes before any request."""
        selection = self.config.selection()
        for drawn in draw(selection):
            for question in drawn.tasks:
                data = _task_data(selection, drawn, question)
                yield ReasoningGymTask(data, self.config.task)


def _task_data(selection: Selection, drawn: FamilyQuestions, question: Question) -> ReasoningGymData:
    return ReasoningGymData(
        id=question.key,
        name=question.key,
        prompt=[MESSAGES[role](content=text) for role, text in drawn.turns(question)],
        system_prompt=selection.system_prompt,
        family=question.family,
        index=question.index,
        seed=selection.seed,
        size=drawn.family.size,
        parameters=dict(drawn.family.parameters),
        answer=question.answer,
        question_digest=question.digest,
        duplicate_of=question.duplicate_of,
        duplicates=question.duplicates,
    )
