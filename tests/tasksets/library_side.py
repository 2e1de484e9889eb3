"""Runs inside the evaluator's environment: answers questions about taskset and library, one JSON a line.

Each line in is {"ask": name, …}, each line out its answer, or {"refused": message} for a refusal of the
taskset's. What the library itself says is asked of the library directly, not through the taskset.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace

from reasoning_gym.algorithmic.word_sorting import TextTransformation
from reasoning_gym.factory import create_dataset
from reasoning_gym.utils import SYSTEM_PROMPTS, extract_answer
from reasoning_gym_tasks.baseline import majority
from reasoning_gym_tasks.questions import draw, score
from reasoning_gym_tasks.selection import Family, Selection, SelectionError


def drawn(selection):
    """Everything the taskset would ask."""
    chosen = Selection.from_mapping(selection)
    families = draw(chosen)
    return {
        family.family.name: {
            "system": chosen.system_prompt,
            "examples": family.examples,
            "passed_over": family.passed_over,
            "tasks": [
                {
                    "key": task.key,
                    "text": task.text,
                    "answer": task.answer,
                    "digest": task.digest,
                    "duplicate_of": task.duplicate_of,
                    "duplicates": task.duplicates,
                    "turns": family.turns(task),
                }
                for task in family.tasks
            ],
            "baseline": vars(majority(family, chosen.seed)),
        }
        for family in families
    }


def scored(name, size, parameters, seed, index, digest, completion):
    """The taskset's score."""
    return score(Family(name, size, parameters), seed, index, digest, completion)


def own_dataset(name, size, parameters, seed):
    """The library's own dataset; the one parameter here that TOML has no type for is converted."""
    if "transformation" in parameters:
        parameters = {**parameters, "transformation": TextTransformation(parameters["transformation"])}
    return create_dataset(name, seed=seed, size=size, **parameters)


def directly(name, size, parameters, seed):
    """The library's own questions and answers."""
    dataset = own_dataset(name, size, parameters, seed)
    return [[dataset[index]["question"], dataset[index]["answer"]] for index in range(size)]


def directly_scored(name, size, parameters, seed, index, completion):
    """The library's own score."""
    dataset = own_dataset(name, size, parameters, seed)
    return dataset.score_answer(extract_answer(completion), dataset[index])


def prompts():
    """The library's own prompts."""
    return SYSTEM_PROMPTS


def through_verifiers(selection, replies):
    """Tasks as Verifiers loads them: key, messages, and rewards and metrics for the reply of that key."""
    import reasoning_gym_tasks

    taskset = reasoning_gym_tasks.ReasoningGymTaskset
    config = taskset.__orig_bases__[0].__args__[1].model_validate({"id": "reasoning_gym_tasks", **selection})
    answers = []
    for task in taskset(config):
        trace = SimpleNamespace(last_reply=replies.get(task.key, ""))
        answers.append(
            {
                "key": task.key,
                "system": task.data.system_prompt,
                "messages": [[message.role, message.content] for message in task.data.prompt],
                "score": asyncio.run(task.answer_score(trace)),
                "answered": asyncio.run(task.answered(trace)),
                "data": task.data.model_dump(mode="json"),
            }
        )
    return answers


ASKED = {
    function.__name__: function
    for function in (drawn, scored, directly, directly_scored, prompts, through_verifiers)
}

for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = ASKED[question.pop("ask")](**question)
    except SelectionError as refusal:
        answer = {"refused": str(refusal)}
    print(json.dumps(answer), flush=True)
