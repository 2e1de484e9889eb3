"""A job: one dataset or taskset, asked of one target by one backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from assay.profile import SEGMENT
from assay.suite.target import Table

DATASET = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9][A-Za-z0-9._-]{0,127})?$"


class Generation(Table):
    """Portable sampling options; None leaves an option out of the request, to the server's default.

    Attributes:
        temperature: 0 is greedy.
        top_p: Nucleus.
        top_k: The likeliest tokens kept.
        min_p: Least share of the likeliest token's probability.
        max_tokens: Tokens generated, thinking included.
        seed: Of the request.
        presence_penalty: OpenAI's.
        frequency_penalty: OpenAI's.
        repetition_penalty: Of engines that offer it.
        stop: Texts that end the answer.
        reasoning_effort: OpenAI's.
        extra_body: More fields of the request's body, as an OpenAI client takes them
            (`chat_template_kwargs.enable_thinking`).
    """

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, gt=0)
    seed: int | None = Field(default=None, ge=0)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = Field(default=None, gt=0)
    stop: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    extra_body: Mapping[str, Any] = {}

    @property
    def sampled(self) -> bool:
        """Whether two requests of one prompt may be answered otherwise: not when it is said to be greedy."""
        return self.temperature is None or self.temperature > 0


class Budget(Table):
    """When to stop before the end; what is then not asked is missing, and the result partial.

    Attributes:
        tokens: Tokens of prompts and answers together, as the server counts them.
        wall_seconds: Since the job's first start, pauses between a run and its resume left out.
    """

    tokens: int | None = Field(default=None, gt=0)
    wall_seconds: float | None = Field(default=None, gt=0)


class Job(Table):
    """One dataset or taskset.

    Attributes:
        id: One path segment; its folder in the run.
        backend: A name of `assay.backends.registry`.
        dataset: What the backend asks: an evaluator's benchmark, a task, or `PROFILE/ENTRY` for `verifiers`.
        target: Name of the target.
        generation: Sampling options.
        limit: Ask only the first so many tasks (of each subset, where the benchmark has subsets).
        repeats: Rollouts of each task.
        max_concurrency: Most slots it may hold; None for the target's.
        budget: When to stop before the end.
        backend_args: The backend's own options, judged by its model of them.
    """

    id: str = Field(pattern=SEGMENT)
    backend: str = Field(pattern=SEGMENT)
    dataset: str = Field(pattern=DATASET)
    target: str = Field(pattern=SEGMENT)
    generation: Generation = Generation()
    limit: int | None = Field(default=None, gt=0)
    repeats: int = Field(default=1, gt=0, le=1024)
    max_concurrency: int | None = Field(default=None, gt=0)
    budget: Budget = Budget()
    backend_args: Mapping[str, Any] = {}

    @model_validator(mode="after")
    def _not_taken(self) -> Self:
        if self.id in RESERVED:
            raise ValueError(f"the id {self.id!r} is a name of the run's own")
        return self


RESERVED = frozenset({"provenance", "answers", "lock"})
