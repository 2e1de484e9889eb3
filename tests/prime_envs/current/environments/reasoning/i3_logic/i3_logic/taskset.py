"""Puzzles of several kinds from one table; kinds named in `tasks_to_skip` are left out, as upstream filters.

A stand-in: `dataset.name` and `dataset.subset` are the real taskset's way in. An answer is a word, or a
Boolean expression that sympy compares by meaning.
"""

from __future__ import annotations

import json

import sympy
import verifiers.v1 as vf
from pydantic_config import BaseConfig
from sympy.logic.boolalg import BooleanTrue
from verifiers.v1.utils.score import extract_boxed_answer

INSTRUCTION = "Write the answer alone as \\boxed{answer}."


class I3LogicData(vf.TaskData):
    kind: str
    """The puzzle's kind."""
    answer: str


class I3LogicTask(vf.Task[I3LogicData]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        found = extract_boxed_answer(trace.last_reply or "", strict=True).strip()
        if self.data.kind == "boolean":
            return float(_equivalent(found, self.data.answer))
        return float(found.lower() == self.data.answer.lower())


class DatasetConfig(BaseConfig):
    name: str = "PrimeIntellect/INTELLECT-3-RL"
    """A repository of the hub, or a directory that holds its files."""
    subset: str = "logic"
    split: str = "train"


class I3LogicConfig(vf.TasksetConfig):
    dataset: DatasetConfig = DatasetConfig()
    tasks_to_skip: tuple[str, ...] = ("drawing",)
    """Kinds that are left out."""


class I3LogicTaskset(vf.Taskset[I3LogicTask, I3LogicConfig]):
    def load(self) -> list[I3LogicTask]:
        from datasets import load_dataset

        chosen = self.config.dataset
        rows = load_dataset(chosen.name, chosen.subset, split=chosen.split)
        tasks = []
        for index, row in enumerate(rows):
            info = json.loads(row["info"])
            if info["task_name"] in self.config.tasks_to_skip:
                continue
            data = I3LogicData(
                idx=index,
                prompt=f"{row['question']}\n\n{INSTRUCTION}",
                kind=info["task_name"],
                answer=info["answer"],
            )
            tasks.append(I3LogicTask(data, self.config.task))
        return tasks


def _equivalent(found: str, gold: str) -> bool:
    """Whether two expressions over single letters mean the same."""
    if not found or set(found) - set("abcpqr&|~() "):
        return False
    letters = {letter: sympy.Symbol(letter) for letter in "abcpqr"}
    try:
        same = sympy.Equivalent(*(sympy.sympify(text, locals=letters) for text in (found, gold)))
    except (sympy.SympifyError, TypeError, ValueError):
        return False
    return isinstance(sympy.simplify_logic(same), BooleanTrue)
