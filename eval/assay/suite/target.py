"""A target: one model, at one endpoint or at several, and how much may be asked of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from assay.profile import SEGMENT

# "none": nobody is asked; only a backend that asks nobody may have such a target.
Protocol = Literal["openai_chat", "none"]


class Table(BaseModel):
    """A table of a suite's TOML: its keys are exactly these."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Requests(Table):
    """How each request to a target is made.

    Attributes:
        timeout_seconds: For one whole answer, its waiting for a slot left out.
        retries: How often a request that failed is repeated; evaluators' own retries are off.
        longest_wait_seconds: The longest Retry-After that is waited for; a longer one fails the request.
    """

    timeout_seconds: float = Field(default=3600.0, gt=0)
    retries: int = Field(default=2, ge=0, le=20)
    longest_wait_seconds: float = Field(default=120.0, ge=0)


class Target(Table):
    """A model service.

    Attributes:
        name: One path segment; the table's name.
        protocol: How it is spoken to.
        base_url: Where it is, ending in `/v1`; several endpoints of the same model are one pool. Empty where
            the run serves the model itself, or where nobody is asked.
        model: The name to ask for.
        serve: Name in `models.lock` of the model that the run serves itself; None where it is there already.
        api_key_env: The variable that holds the key; None for an open endpoint or a key in a file.
        key_file: A private file that holds the key (`assay.run.key`); None for none.
        max_concurrency: Requests in flight, over all its endpoints and all jobs together.
        request: How each is made.
        provenance: What the operator says of it, by name; recorded as declared. Never a secret.
    """

    name: str = Field(pattern=SEGMENT)
    protocol: Protocol = "openai_chat"
    base_url: tuple[str, ...] = ()
    model: str = ""
    serve: str | None = None
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]{0,63}$")
    key_file: Path | None = None
    max_concurrency: int = Field(gt=0, le=4096)
    request: Requests = Requests()
    provenance: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.protocol == "none":
            if self.base_url or self.serve or self.api_key_env or self.key_file:
                raise ValueError("a target with the protocol none has no endpoint and no key")
            return self
        if bool(self.base_url) == (self.serve is not None):
            raise ValueError("give either base_url, or serve (a name in models.lock)")
        if self.serve is None and not self.model:
            raise ValueError("model is missing: the name to ask for")
        if self.api_key_env is not None and self.key_file is not None:
            raise ValueError("give either api_key_env or key_file")
        if len(set(self.base_url)) != len(self.base_url):
            raise ValueError("base_url names one endpoint twice")
        return self
