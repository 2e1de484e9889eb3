"""The toy taskset: "what comes after N?", a family of letters and one of digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SYSTEM = "Answer between <answer> and </answer>."


@dataclass(frozen=True)
class Task:
    """One question and its gold answer."""

    key: str
    family: str
    question: str
    answer: str

    @property
    def prompt(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.question}]


def load(config: dict[str, Any]) -> list[Task]:
    """The tasks of `[[env.taskset.families]]`; every third question repeats the first."""
    found = []
    for family in config["env"]["taskset"]["families"]:
        for index in range(family["size"]):
            asked = 0 if index % 3 == 2 else index
            key = f"{family['name']}/{index}"
            found.append(
                Task(key, family["name"], f"What comes after {family['name']} {asked}?", str(asked + 1))
            )
    return found
