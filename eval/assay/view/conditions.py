"""The conditions that a score was obtained under, by dotted name: two runs are alike when these are equal.

What is compared is never among them: server, endpoint and model. Nor is what decides no answer: where things
lay on the machine, how many requests were in flight, the installed form of an environment (its locks stand
for it; what was installed is held against them by the run), and this program's own revision, which the run
records. What nobody here knows by name is a condition all the same: an unknown option may decide an answer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from assay.digest import canonical_json, combined_digest, value_digest
from assay.view.rows import Trait

EVALUATOR_FILE = re.compile(
    r"(^|/)evaluators/[^/]+/(?P<name>evaluator\.toml|build\.lock|requirements\.lock)$"
)
RECIPE = re.compile(r"(^|/)runtime/[^/]+$|\.pins$|(^|/)images\.lock$")
TASKSET = "eval/tasksets/"
# Kinds of frozen inputs that decide no answer by themselves, or belong to what is compared.
PASSED_OVER = frozenset({"environment", "file", "model", "suite", "tree", "launch"})


def leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each leaf of a table with its dotted name; lists are leaves, and a number is told in one way only."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(f"{prefix}.{name}" if prefix else str(name), inner)
    else:
        yield prefix, text(value)


def text(value: Any) -> str:
    """A value as a condition holds it: 0 and 0.0 are one number, a text is itself, the rest JSON."""
    return value if isinstance(value, str) else canonical_json(_plain(value)).decode("utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def digest(value: Any) -> str:
    """SHA-256 over what is too long to be a condition by itself."""
    return value_digest(_plain(value))


def of_tasks(trait: Trait | None, rollouts: int, limit: int | None) -> dict[str, str]:
    """What was asked: how many tasks, of which questions, how often.

    Args:
        trait: Of the rows; None where there are none.
        rollouts: Of each task.
        limit: Only the first so many tasks of the data were asked; None for all.
    """
    return {
        "tasks.count": text(trait.tasks if trait else 0),
        "tasks.questions": trait.questions if trait else "none",
        "tasks.rollouts": text(rollouts),
        "tasks.limit": text(limit),
    }


def of_inputs(inputs: Mapping[str, str], sandboxed: bool, programs: Iterable[str] = ()) -> dict[str, str]:
    """Of frozen inputs (`kind:name`), those that decide a question, a prompt or a judgement.

    Args:
        inputs: SHA-256 by name.
        sandboxed: Whether programs run for a rollout, so that the sandbox's recipe counts.
        programs: File names of this checkout's own programs in the evaluator's environment.
    """
    found: dict[str, str] = {}
    data: dict[str, dict[str, str]] = defaultdict(dict)
    recipe: dict[str, str] = {}
    ours = set(programs)
    for whole, digest in inputs.items():
        kind, _, name = whole.partition(":")
        if kind == "data":
            data[name.partition("/")[0]][name] = digest
        elif kind == "local":
            # Where it lay is the machine's; what it was is not.
            data[f"local.{name.rstrip('/').rpartition('/')[2]}"][digest] = digest
        elif kind == "sandbox":
            found[f"sandbox.{name}"] = digest
        elif kind == "source":
            found[f"evaluator.source.{name}"] = digest
        elif kind == "tree" and name.startswith(TASKSET):
            found[f"evaluator.taskset.{name.removeprefix(TASKSET)}"] = digest
        elif kind == "file" and (match := EVALUATOR_FILE.search(name)):
            found[f"evaluator.{match['name']}"] = digest
        elif kind == "file" and name.rpartition("/")[2] in ours:
            found[f"evaluator.program.{name.rpartition('/')[2]}"] = digest
        elif kind == "file" and RECIPE.search(name):
            recipe[name.rpartition("/")[2]] = digest
        elif kind not in PASSED_OVER:
            found[f"evaluator.{kind}.{name}"] = digest
    if sandboxed and recipe:
        found["sandbox.recipe"] = combined_digest(recipe)
    return found | {f"data.{name}": combined_digest(files) for name, files in data.items()}
