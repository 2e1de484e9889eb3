"""One row of `samples.jsonl`: one rollout of one task, and what became of it.

Every planned rollout has exactly one row, also those that never happened: `planned = scored + errored +
truncated + missing`. A truncated answer is scored all the same (upstream scores it), but told apart, since
a limit that cuts answers is a finding about the run and not about the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

Status = Literal["scored", "errored", "truncated", "missing"]
STATUSES: tuple[Status, ...] = ("scored", "errored", "truncated", "missing")


class Seconds(BaseModel):
    """Where a rollout's time went, in seconds; None where the evaluator did not measure."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    boot_s: float | None = None
    setup_s: float | None = None
    agent_s: float | None = None
    scoring_s: float | None = None
    total_s: float | None = None


class Sample(BaseModel):
    """One rollout, derived from the evaluator's own record, which stays authoritative.

    Attributes:
        entry: The profile's entry.
        task_key: The task's key as the taskset gives it.
        rollout: 0-based number of the repetition.
        seed: Of its requests, where each rollout has one of its own.
        family: The generator or subset the task belongs to.
        cluster: Digest of the question; rows that share it ask the same thing.
        prompt_digest: SHA-256 over the canonical JSON of the prompt's messages.
        answer_digest: SHA-256 of the text of the model's last message; None when there is none.
        output_digest: SHA-256 over all that the model generated, thinking and tool calls included; rollouts
            that share it are one answer.
        reward: Sum of score times weight; None unless scored or truncated.
        rewards: Each reward's score by name.
        status: What became of it.
        error: Kind and message of the failure, for an errored row.
        empty: The answer has no visible text.
        thinking: The model thought apart from its answer, as the record shows it; None where no record tells.
        unparsed: The scorer found no answer in the text; None where no record tells.
        finish_reason: Of the last model call.
        stop_condition: Why the harness ended the rollout.
        prompt_tokens: Tokens sent, cached ones included where the server tells; those of earlier turns once.
        completion_tokens: Tokens generated.
        turns: Messages the model generated.
        attempts: Model calls made, failed ones that the harness repeated included.
        seconds: Where the time went.
        record: The evaluator's record this row was derived from, below the run directory.
        line: 1-based line of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    entry: str
    task_key: str
    rollout: int
    seed: int | None
    family: str
    cluster: str
    prompt_digest: str | None
    answer_digest: str | None
    output_digest: str | None
    reward: float | None
    rewards: Mapping[str, float]
    status: Status
    error: str | None
    empty: bool
    thinking: bool | None = None
    unparsed: bool | None = None
    finish_reason: str | None
    stop_condition: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    turns: int | None
    attempts: int
    seconds: Seconds
    record: str | None
    line: int | None

    @model_validator(mode="after")
    def _scored_means_a_score(self) -> Self:
        if (self.reward is not None) != (self.status in ("scored", "truncated")):
            raise ValueError(f"a row that is {self.status} has the reward {self.reward}")
        return self


# What the row of a rollout says that never happened, but for which one it is.
NEVER: Mapping[str, Any] = {
    "prompt_digest": None,
    "answer_digest": None,
    "output_digest": None,
    "reward": None,
    "rewards": {},
    "status": "missing",
    "error": None,
    "empty": False,
    "finish_reason": None,
    "stop_condition": None,
    "prompt_tokens": None,
    "completion_tokens": None,
    "turns": None,
    "attempts": 0,
    "seconds": Seconds(),
    "record": None,
    "line": None,
}


class PlannedTask(BaseModel):
    """A task the run must hold a row for, known from the taskset alone, before any model is asked.

    Attributes:
        key: The task's key.
        family: The generator or subset it belongs to.
        prompt_digest: SHA-256 over the canonical JSON of the prompt's messages; None where the harness words
            them.
        task_hash: Upstream's own digest of the task's data; None where the taskset tells none.
        question_digest: SHA-256 of the question; equal for duplicates.
        duplicate_of: Key of the earlier task with the same question, if there is one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    key: str
    family: str
    prompt_digest: str | None = None
    task_hash: str | None = None
    question_digest: str
    duplicate_of: str | None = None


class Baseline(BaseModel):
    """The constant answer that would score best in a family, by the library's own scorer."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    answer: str
    score: float


class TaskPlan(BaseModel):
    """What the taskset says it will ask: tasks in order, and the constant-answer baseline a family."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tasks: tuple[PlannedTask, ...]
    baselines: Mapping[str, Baseline]
