"""From a selection to its questions: drawn by the library, in a fixed order, examples apart from tasks.

The library's generators are functions of seed, index and the process's hash seed, but not by contract: one
draws from the global random state. So each family is generated twice and must come out the same, and the
process must run under the selection's hash seed; otherwise nothing is asked at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reasoning_gym.factory import DATASETS
from reasoning_gym.utils import extract_answer

from reasoning_gym_tasks.selection import Family, Selection, SelectionError

EXAMPLES_TRIED_EACH = 32
"""How many candidates are drawn for each worked example before the family is called too small."""


@dataclass(frozen=True)
class Question:
    """One generated question.

    Attributes:
        key: `family/index`, the task's stable name.
        family: The generator's name.
        index: Its index in the generator, from 0.
        text: The question, as the library words it.
        answer: The library's gold answer, or None where it gives none.
        digest: SHA-256 of the question's UTF-8 bytes.
        duplicate_of: Key of the first task with the same question, or None when this is the first.
        duplicates: Tasks of the family with this very question, itself included.
    """

    key: str
    family: str
    index: int
    text: str
    answer: str | None
    digest: str
    duplicate_of: str | None
    duplicates: int


@dataclass(frozen=True)
class FamilyQuestions:
    """A family's tasks and the worked examples that stand before each of them.

    Attributes:
        family: What was drawn.
        tasks: Its questions, in order of their index.
        examples: Pairs of question and gold answer, none of whose questions is a task.
        passed_over: Candidates for examples that were passed over, as a task or an earlier example.
    """

    family: Family
    tasks: tuple[Question, ...]
    examples: tuple[tuple[str, str], ...]
    passed_over: int

    def turns(self, question: Question) -> tuple[tuple[str, str], ...]:
        """The conversation up to the model's turn, as (role, text); examples answer in the library's tags."""
        earlier = [
            turn
            for text, answer in self.examples
            for turn in (("user", text), ("assistant", f"<answer>{answer}</answer>"))
        ]
        return (*earlier, ("user", question.text))


def draw(selection: Selection) -> tuple[FamilyQuestions, ...]:
    """Every family's tasks and examples, in the selection's order.

    Raises:
        SelectionError: this process has another hash seed, a generator is not a function of its seed, or a
            family has too few distinct questions for its examples.
    """
    require_hash_seed(selection.hash_seed)
    return tuple(_draw_family(family, selection) for family in selection.families)


def require_hash_seed(hash_seed: int) -> None:
    """SelectionError unless this interpreter was started with PYTHONHASHSEED at that value."""
    randomized = bool(sys.flags.hash_randomization)
    if os.environ.get("PYTHONHASHSEED") != str(hash_seed) or randomized != (hash_seed != 0):
        raise SelectionError(
            f"hash_seed is {hash_seed}, but this process was not started with PYTHONHASHSEED={hash_seed}: "
            "some generators would ask other questions"
        )


def score(family: Family, seed: int, index: int, digest: str, completion: str) -> tuple[bool, float]:
    """The library's verdict on a completion: was an answer found in it, and what it is worth.

    Args:
        family: The family the question is from.
        seed: The seed its tasks were drawn under.
        index: The question's index.
        digest: The question's digest; the question is drawn again and must be the same.
        completion: The model's whole reply.

    Raises:
        SelectionError: the generator no longer gives that question.
    """
    dataset, entries = _entries(_Draw.of(family, seed, family.size))
    entry = entries[index]
    if question_digest(str(entry["question"])) != digest:
        raise SelectionError(
            f"{family.name}/{index}: the generator no longer gives the question that was asked"
        )
    answer = extract_answer(completion)
    return answer is not None, float(dataset.score_answer(answer, entry))


def score_constant(family: Family, seed: int, answer: str) -> float:
    """The mean the library gives that one answer over all of the family's tasks."""
    dataset, entries = _entries(_Draw.of(family, seed, family.size))
    return sum(float(dataset.score_answer(answer, entry)) for entry in entries) / len(entries)


def question_digest(text: str) -> str:
    """SHA-256 of a question's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class _Draw:
    """A family, a seed and a size in a hashable form: parameters as canonical JSON."""

    name: str
    parameters: str
    seed: int
    size: int

    @classmethod
    def of(cls, family: Family, seed: int, size: int) -> _Draw:
        return cls(family.name, json.dumps(dict(family.parameters), sort_keys=True, default=str), seed, size)


@lru_cache(maxsize=256)
def _entries(draw: _Draw) -> tuple[Any, tuple[Mapping[str, Any], ...]]:
    """The library's dataset and its first `size` entries; SelectionError when a second drawing differs."""
    family = Family(draw.name, draw.size, json.loads(draw.parameters))
    first, again = (_generate(family, draw.seed, draw.size) for _ in range(2))
    if [_content(entry) for entry in first[1]] != [_content(entry) for entry in again[1]]:
        raise SelectionError(f"{draw.name}: the generator is not a function of its seed: two drawings differ")
    return first


def _generate(family: Family, seed: int, size: int) -> tuple[Any, tuple[Mapping[str, Any], ...]]:
    dataset = DATASETS[family.name][0](config=family.config(seed, size))
    return dataset, tuple(dataset[index] for index in range(size))


def _content(entry: Mapping[str, Any]) -> tuple[object, object]:
    return entry["question"], entry["answer"]


def _draw_family(family: Family, selection: Selection) -> FamilyQuestions:
    _, entries = _entries(_Draw.of(family, selection.seed, family.size))
    tasks = _questions(family.name, entries)
    taken = {task.text for task in tasks}
    examples: list[tuple[str, str]] = []
    passed_over = 0
    if selection.n_shot:
        size = selection.n_shot * EXAMPLES_TRIED_EACH
        _, candidates = _entries(_Draw.of(family, selection.example_seed, size))
        for candidate in candidates:
            if len(examples) == selection.n_shot:
                break
            if candidate["question"] in taken:
                passed_over += 1
                continue
            if candidate["answer"] is None:
                raise SelectionError(
                    f"{family.name}: the library gives no gold answer to show: set n_shot = 0"
                )
            taken.add(candidate["question"])
            examples.append((str(candidate["question"]), str(candidate["answer"])))
    if len(examples) < selection.n_shot:
        raise SelectionError(
            f"{family.name}: {len(examples)} of {selection.n_shot} examples that are no task, "
            f"after {passed_over} were passed over: lower size or n_shot, or widen the parameters"
        )
    return FamilyQuestions(family, tasks, tuple(examples), passed_over)


def _questions(name: str, entries: Sequence[Mapping[str, Any]]) -> tuple[Question, ...]:
    texts = [str(entry["question"]) for entry in entries]
    counts = Counter(texts)
    first: dict[str, str] = {}
    questions = []
    for index, (text, entry) in enumerate(zip(texts, entries, strict=True)):
        key = f"{name}/{index}"
        original = first.setdefault(text, key)
        questions.append(
            Question(
                key=key,
                family=name,
                index=index,
                text=text,
                answer=None if entry["answer"] is None else str(entry["answer"]),
                digest=question_digest(text),
                duplicate_of=None if original == key else original,
                duplicates=counts[text],
            )
        )
    return tuple(questions)
