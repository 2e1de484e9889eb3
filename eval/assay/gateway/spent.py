"""What a job has cost so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spent:
    """Counts over all lives of a job's lane.

    Attributes:
        prompt_tokens: As the servers counted them.
        completion_tokens: As the servers counted them.
        requests: Of the child, that went on to the target; what was replayed is not among them.
        retries: How often one of them was asked again here.
        replayed: Requests that were answered from the journal.
        errors: Requests that ended without an answer to keep; a resume asks them again.
        uncounted: Answers whose server did not say how many tokens they took.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0
    retries: int = 0
    replayed: int = 0
    errors: int = 0
    uncounted: int = 0

    @property
    def tokens(self) -> int:
        """Of prompts and answers together."""
        return self.prompt_tokens + self.completion_tokens
