"""Questions with up to ten lettered answers; worked examples of its category are the split `validation`.

A stand-in: the repository's name and revision are written down here, as in the real taskset, so that it finds
its rows only through the working directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import verifiers.v1 as vf
from pydantic import Field

REPOSITORY = "TIGER-Lab/MMLU-Pro"
REVISION = "b189ec765aa7ed75c8acfea42df31fdae71f97be"
LETTERS = "ABCDEFGHIJ"
INSTRUCTION = 'End with the line "Answer: X", where X is the letter.'


class MMLUProData(vf.TaskData):
    question_id: int
    category: str
    answer: str
    """The right letter."""


class MMLUProTask(vf.Task[MMLUProData]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        letters = re.findall(r"Answer:\s*\(?([A-J])\b", trace.last_reply or "")
        return float(bool(letters) and letters[-1] == self.data.answer)


class MMLUProConfig(vf.TasksetConfig):
    n_shot: int = Field(5, ge=0)
    """Worked examples before each question."""


class MMLUProTaskset(vf.Taskset[MMLUProTask, MMLUProConfig]):
    def load(self) -> list[MMLUProTask]:
        from datasets import load_dataset

        examples = load_dataset(REPOSITORY, revision=REVISION, split="validation")
        rows = load_dataset(REPOSITORY, revision=REVISION, split="test")
        return [
            MMLUProTask(
                MMLUProData(
                    idx=index,
                    prompt=_prompt(row, examples, self.config.n_shot),
                    question_id=row["question_id"],
                    category=row["category"],
                    answer=row["answer"],
                ),
                self.config.task,
            )
            for index, row in enumerate(rows)
        ]


def _prompt(row: Mapping[str, Any], examples: Iterable[Mapping[str, Any]], n_shot: int) -> str:
    shown = [example for example in examples if example["category"] == row["category"]][:n_shot]
    parts = [INSTRUCTION]
    parts += [f"{_question(example)}\n{example['cot_content']}" for example in shown]
    return "\n\n".join([*parts, _question(row)])


def _question(row: Mapping[str, Any]) -> str:
    options = [f"{letter}. {option}" for letter, option in zip(LETTERS, row["options"], strict=False)]
    return "\n".join([row["question"], *options])
