"""reasoning-gym's generators and scorers, handed through as a Verifiers v1 taskset.

The library decides what is asked and what an answer is worth: its generators, its `SYSTEM_PROMPTS`, its
`extract_answer`, its `score_answer`. Here is only the plumbing: which generators, with which parameters and
seeds, and how worked examples from a second seed become earlier turns of the conversation.

Verifiers finds the taskset class through `__all__`. It is imported on first use, so that
`python -m reasoning_gym_tasks.describe` can plan a run without the seconds that importing Verifiers costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reasoning_gym_tasks.taskset import ReasoningGymTaskset

__all__ = ["ReasoningGymTaskset"]


def __getattr__(name: str) -> object:
    """Import the taskset class when it is first asked for; AttributeError for any other name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reasoning_gym_tasks import taskset

    return getattr(taskset, name)
