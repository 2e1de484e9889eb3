"""A request that a run made and got an answer to, as it can be made again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.gateway.message import Request
from assay.reproduce.said import Said

GENERATING = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})


@dataclass(frozen=True)
class Question:
    """One request and its recorded answer.

    Attributes:
        where: Where the record stands, e.g. "answers/aime25.jsonl number 3".
        of: What it belongs to, by name: job, or entry, task_key, rollout and turn.
        target: Which target of the suite answered; empty in a profile's run.
        request: What was asked, or is to be asked.
        then: What was answered.
    """

    where: str
    of: Mapping[str, Any]
    target: str
    request: Request
    then: Said

    @property
    def drawn(self) -> bool:
        """Whether its answer was drawn at random and from no seed, so that another one tells nothing."""
        value = _object(self.request.body)
        if value is None or self.request.path.partition("?")[0] not in GENERATING:
            return False
        temperature = value.get("temperature")
        if type(temperature) in (int, float) and temperature == 0:
            return False
        return value.get("top_k") != 1 and value.get("seed") is None

    @property
    def model(self) -> str | None:
        """The model that it asks for, by name."""
        value = _object(self.request.body)
        found = (value or {}).get("model")
        return found if isinstance(found, str) else None

    def asking(self, model: str) -> Request:
        """The request for a model of that name: the same bytes, where it is called the same."""
        value = _object(self.request.body)
        if value is None or value.get("model") == model:
            return self.request
        body = json.dumps({**value, "model": model}, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return Request(self.request.method, self.request.path, self.request.headers, body)


@dataclass(frozen=True)
class Chosen:
    """What is asked again.

    Attributes:
        questions: Of the samples that were picked, in the order of the record.
        finished: How many samples there were to pick from.
        samples: How many were picked.
        left_out: What could be picked and cannot be asked, and why.
    """

    questions: tuple[Question, ...]
    finished: int
    samples: int
    left_out: tuple[str, ...] = field(default=())


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
