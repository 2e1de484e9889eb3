"""Sums whose answer is asked in a box; scored in the evaluator's process. Rows: two subsets, split `test`.

A stand-in: the way in (`dataset_name`, a repository of the hub or a directory) and the network policy are the
real taskset's, the questions are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.utils.score import verify_boxed_math_answer

INSTRUCTION = "Work the sum out. End with the result alone, written as \\boxed{result}."


class AIME25Data(vf.TaskData):
    answer: str
    """The sum's result."""


class AIME25Task(vf.Task[AIME25Data]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        return verify_boxed_math_answer(trace.last_reply, self.data.answer)


class AIME25Config(vf.TasksetConfig):
    dataset_name: str = "opencompass/AIME2025"
    """A repository of the hub, or a directory that holds its files."""


class AIME25Taskset(vf.Taskset[AIME25Task, AIME25Config]):
    def load(self) -> list[AIME25Task]:
        from datasets import load_dataset

        rows = [
            row
            for contest in ("AIME2025-I", "AIME2025-II")
            for row in load_dataset(self.config.dataset_name, contest, split="test")
        ]
        return [AIME25Task(_data(index, row), self.config.task) for index, row in enumerate(rows)]


def _data(index: int, row: Mapping[str, Any]) -> AIME25Data:
    return AIME25Data(
        idx=index,
        prompt=f"{row['question']}\n\n{INSTRUCTION}",
        answer=str(row["answer"]),
        network_allow=[],
    )
