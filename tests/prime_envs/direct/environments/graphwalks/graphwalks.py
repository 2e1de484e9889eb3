"""A stand-in for graphwalks of the older kind: the whole graph in the prompt, one turn. No benchmark.

The repository's name and the loader's arguments are the real environment's.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import verifiers as vf
from datasets import load_dataset

ANSWER = re.compile(r"Final Answer:\s*\[(.*?)\]", re.IGNORECASE)
RANGE = re.compile(r"(\d+)\s*-\s*(\d+)|(<=|>=|<|>|==)\s*(\d+)")
COMPARE = {
    "<=": int.__le__,
    ">=": int.__ge__,
    "<": int.__lt__,
    ">": int.__gt__,
    "==": int.__eq__,
}


def load_environment(
    split: str = "train",
    scoring: Literal["exact", "f1"] = "exact",
    prompt_chars_filter: str | None = None,
    problem_type: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    num_examples: int = -1,
) -> vf.Environment:
    """The environment.

    Args:
        split: Of the data set.
        scoring: `exact` compares sets, `f1` their overlap.
        prompt_chars_filter: `<=N`, `>=N`, `<N`, `>N`, `==N` or `LOW-HIGH` characters in the prompt.
        problem_type: Only rows of this type.
        shuffle: Shuffle the rows first.
        seed: Of the shuffle.
        num_examples: Rows at most; all when negative.
    """
    rows = load_dataset("openai/graphwalks", split=split)
    rows = rows.filter(
        lambda row: (
            _within(prompt_chars_filter, len(row["prompt"])) and problem_type in (None, row["problem_type"])
        )
    )
    if shuffle:
        rows = rows.shuffle(seed=seed)
    if num_examples >= 0:
        rows = rows.select(range(min(num_examples, len(rows))))
    rows = rows.map(
        lambda row: {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "answer": ", ".join(row["answer_nodes"]),
        },
        remove_columns=rows.column_names,
    )

    def nodes(completion: Any, answer: str, **_: Any) -> float:
        replies = ANSWER.findall(_text(completion))
        found, gold = _split(replies[-1] if replies else ""), _split(answer)
        if scoring == "exact":
            return float(bool(replies) and found == gold)
        return 2 * len(found & gold) / (len(found) + len(gold)) if found or gold else 0.0

    return vf.SingleTurnEnv(eval_dataset=rows, rubric=vf.Rubric(funcs=[nodes]))


def _within(wanted: str | None, characters: int) -> bool:
    if wanted is None:
        return True
    match = RANGE.fullmatch(wanted.strip())
    if match is None:
        raise ValueError(f"prompt_chars_filter {wanted!r} is neither a comparison nor a range")
    low, high, sign, bound = match.groups()
    if sign:
        return bool(COMPARE[sign](characters, int(bound)))
    return int(low) <= characters <= int(high)


def _split(text: str) -> set[str]:
    return {node.strip() for node in text.split(",") if node.strip()}


def _text(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    return str(completion[-1].get("content") or "") if completion else ""
