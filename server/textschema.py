"""What may be asked of plain text: completions, and the tokenizer alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from server.chatschema import Messages, Rendering
from server.errors import invalid
from server.schema import MAX_TOP_LOGPROBS, AnswerRequest, TokenId


class CompletionRequest(AnswerRequest):
    """`POST /v1/completions`."""

    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    # For each prompt position the ids whose log-probabilities there are wanted; one such list a prompt
    # where there are several. The first position has nothing before it, so its list is empty.
    prompt_logprob_ids: list[list[TokenId]] | list[list[list[TokenId]]] | None = None


class TokenizeRequest(Rendering):
    """`POST /tokenize`: a text, or messages as a chat would render them."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None  # another name for `prompt`
    messages: Messages | None = None

    def text(self) -> str | None:
        """Return the text, or None where there are messages; ApiError 400 unless exactly one is given."""
        given = [name for name in ("prompt", "content", "messages") if getattr(self, name) is not None]
        if len(given) != 1:
            raise invalid("exactly one of prompt, content and messages is wanted", (given or ["prompt"])[-1])
        return self.prompt if self.prompt is not None else self.content


class DetokenizeRequest(BaseModel):
    """`POST /detokenize`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = None
    tokens: list[TokenId]
