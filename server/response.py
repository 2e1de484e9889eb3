"""The shapes of what the server answers, for its OpenAPI document and for tests that hold answers to them.

The answers themselves are written by the wires, which build no models: a token would cost several times as
much. That both say the same is tested.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


class Shape(BaseModel):
    """Closed: a field that stands nowhere here is in no answer."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PromptTokens(Shape):
    """More about the prompt's tokens."""

    cached_tokens: Count  # not computed again: they stood in the prefix cache


class CompletionTokens(Shape):
    """More about the generated tokens."""

    reasoning_tokens: Count  # of the thinking, its closing mark included


class Usage(Shape):
    """A request's tokens; the prompt is counted once, however many choices it has."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptTokens
    completion_tokens_details: CompletionTokens


class TopLogprob(Shape):
    """One of the likeliest tokens at a place."""

    token: str
    bytes: list[Annotated[int, Field(ge=0, le=255)]]
    logprob: float


class TokenLogprob(TopLogprob):
    """A generated token with its log-probability before any sampling parameter and any grammar."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Shape):
    """The log-probabilities of every token, thinking and calls of tools included."""

    content: list[TokenLogprob]
    refusal: None


class CalledFunction(Shape):
    """A function and its arguments, the text of a JSON object."""

    name: str
    arguments: str


class ToolCall(Shape):
    """A call that the answer makes."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Shape):
    """A whole answer."""

    role: Literal["assistant"]
    content: str | None  # null where there are only calls
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(Shape):
    """One choice of a chat."""

    index: Count
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class Envelope(Shape):
    """What every answer of a request carries."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class ChatCompletion(Envelope):
    """The answer to a chat that is not streamed."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(Shape):
    """A part of a call's function."""

    name: str | None = None
    arguments: str


class ToolCallDelta(Shape):
    """A part of a call: the first has id, type and name, the second the arguments."""

    index: Count
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class ChatDelta(Shape):
    """What a chunk adds."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(Shape):
    """One choice's part of a chunk."""

    index: Count
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None


class ChatChunk(Envelope):
    """One event of a streamed chat; the last one before `[DONE]` may hold the usage and no choices."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


class TextLogprobs(Shape):
    """Log-probabilities of text completions, token by token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]


class PromptScores(Shape):
    """What `prompt_logprob_ids` asked for, position by position."""

    top_ids: list[Count | None]  # the likeliest token there; null at the first position
    logprobs: list[list[float]]  # float32 numbers, of the ids in the order they were asked in


class TextChoice(Shape):
    """One choice of a text completion."""

    index: Count
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None  # null in a chunk that is not the last
    prompt_scores: PromptScores | None = None


class TextCompletion(Envelope):
    """A text completion, or one event of a streamed one."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: Usage | None = None


class Tokenized(Shape):
    """The tokens of a text."""

    tokens: list[Count]
    count: Count
    max_model_len: Count


class Detokenized(Shape):
    """The text of tokens, under both names that clients know."""

    prompt: str
    content: str


class Model(Shape):
    """The model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: Count


class Models(Shape):
    """The list with the one model."""

    object: Literal["list"]
    data: list[Model]


class Health(Shape):
    """The server answers."""

    status: Literal["ok"]


class ErrorBody(Shape):
    """What is wrong; the two numbers stand in the refusal of a prompt that does not fit."""

    message: str
    type: str
    param: str | None
    code: str | None
    n_prompt_tokens: Count | None = None
    n_ctx: Count | None = None


class Refusal(Shape):
    """Any answer that is no 200."""

    error: ErrorBody


class Identity(BaseModel):
    """Who answers, by digests; server/identity.py says what each part is."""

    model_config = ConfigDict(extra="allow")

    system_fingerprint: str
    settings: dict[str, Any] | None = None
