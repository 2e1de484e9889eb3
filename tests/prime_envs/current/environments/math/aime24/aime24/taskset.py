"""Sums whose answer is asked in a box; scored in the evaluator's process. Rows: one split, `train`.

A stand-in: the way in (`dataset_name`, a repository of the hub or a directory) and the network policy are the
real taskset's, the questions are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.utils.score import verify_boxed_math_answer

INSTRUCTION = "Work the sum out. End with the result alone, written as \\boxed{result}."


class AIME24Data(vf.TaskData):
    answer: str
    """The sum's result."""


class AIME24Task(vf.Task[AIME24Data]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        return verify_boxed_math_answer(trace.last_reply, self.data.answer)


class AIME24Config(vf.TasksetConfig):
    dataset_name: str = "HuggingFaceH4/aime_2024"
    """A repository of the hub, or a directory that holds its files."""


class AIME24Taskset(vf.Taskset[AIME24Task, AIME24Config]):
    def load(self) -> list[AIME24Task]:
        from datasets import load_dataset

        rows = load_dataset(self.config.dataset_name, split="train")
        return [AIME24Task(_data(index, row), self.config.task) for index, row in enumerate(rows)]


def _data(index: int, row: Mapping[str, Any]) -> AIME24Data:
    return AIME24Data(
        idx=index,
        prompt=f"{row['problem']}\n\n{INSTRUCTION}",
        answer=str(row["answer"]),
        network_allow=[],
    )
