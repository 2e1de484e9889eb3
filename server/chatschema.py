"""What a chat may ask: messages, tools, the form of the response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from server.errors import invalid
from server.schema import MAX_TOP_LOGPROBS, AnswerRequest
from server.toolformat import Tool

MAX_TOOLS = 128
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class TextPart(BaseModel):
    """One part of a message's content; only text is supported."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["text"]
    text: str


class CalledFunction(BaseModel):
    """Which function was called and how."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: str
    arguments: str | dict[str, Any]  # OpenAI's is the text of a JSON object


class CalledTool(BaseModel):
    """A call that an earlier answer made."""

    model_config = ConfigDict(strict=True, extra="allow")

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction

    def plain(self) -> dict[str, object]:
        """Return the call as templates read it: the arguments as an object."""
        given = self.function.arguments
        if isinstance(given, str):
            try:
                value = json.loads(given)
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                raise invalid("messages: the arguments of a tool call are no JSON object", "messages")
            given = value
        function = {**(self.function.model_extra or {}), "name": self.function.name, "arguments": given}
        return {**(self.model_extra or {}), "id": self.id, "type": self.type, "function": function}


class Message(BaseModel):
    """One message; keys beside these are handed to the chat template as they are."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None
    tool_calls: list[CalledTool] | None = None  # of an assistant's earlier answer
    tool_call_id: str | None = None  # which call a tool's message answers

    def plain(self) -> dict[str, object]:
        """Return the message as the template sees it: its text parts joined, nothing as an empty text."""
        content = self.content
        if content is None:
            text = ""
        else:
            text = content if isinstance(content, str) else "".join(part.text for part in content)
        out: dict[str, object] = {**(self.model_extra or {}), "role": self.role, "content": text}
        if self.tool_calls:
            out["tool_calls"] = [call.plain() for call in self.tool_calls]
        if self.tool_call_id is not None:
            out["tool_call_id"] = self.tool_call_id
        return out


class Function(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None  # JSON Schema of its arguments
    strict: bool | None = None  # the arguments follow the schema also when the choice is the model's


class ToolSpec(BaseModel):
    """A tool on offer; the template sees it as the client wrote it, in the client's order of keys."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["function"]
    function: Function
    _given: Mapping[str, object] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, value: Any, handler: ModelWrapValidatorHandler[ToolSpec]) -> ToolSpec:
        out = handler(value)
        if isinstance(value, dict):
            out._given = value
        return out

    def plain(self) -> Mapping[str, object]:
        """Return the tool as the client wrote it."""
        return self._given

    def tool(self) -> Tool:
        """Return what parsing and grammars need of it."""
        return Tool(self.function.name, self.function.parameters or {})


class NamedFunction(BaseModel):
    """The function that must be called."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str


class NamedTool(BaseModel):
    """The tool that must be called."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(BaseModel):
    """A schema for the answer."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str | None = None
    description: str | None = None
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None  # the schema is enforced either way


class AnyText(BaseModel):
    """Free text."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text"]


class AnyJsonObject(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["json_object"]


class SchemaFormat(BaseModel):
    """JSON that follows a schema."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["json_schema"]
    json_schema: JsonSchema


Messages = Annotated[list[Message], Field(min_length=1)]


class Rendering(BaseModel):
    """What a chat template reads beside the messages."""

    model_config = ConfigDict(strict=True, extra="forbid")

    tools: Annotated[list[ToolSpec], Field(max_length=MAX_TOOLS)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None


class ChatRequest(AnswerRequest, Rendering):
    """`POST /v1/chat/completions`."""

    messages: Messages
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None  # wins over max_tokens
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: Annotated[AnyText | AnyJsonObject | SchemaFormat, Field(discriminator="type")] | None = (
        None
    )
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None  # none without tools
    parallel_tool_calls: bool | None = None  # false: an answer ends with its first call
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None

    def wanted_logprobs(self) -> int | None:
        """Return how many alternatives stand beside each token, or None without log-probabilities."""
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs to be true", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    def wanted_schema(self) -> Mapping[str, object] | None:
        """Return the schema that the content must follow, or None for free text."""
        if isinstance(self.response_format, SchemaFormat):
            return self.response_format.json_schema.json_schema
        return {"type": "object"} if isinstance(self.response_format, AnyJsonObject) else None

    def offered(self) -> list[ToolSpec]:
        """Return the tools that the model is shown; ApiError 400 where the choice contradicts them."""
        tools, choice = self.tools or [], self.tool_choice
        names = [tool.function.name for tool in tools]
        if len(set(names)) < len(names):
            raise invalid("tools: two functions have one name", "tools")
        if choice == "required" and not tools:
            raise invalid("tool_choice: required, but there are no tools", "tool_choice")
        if isinstance(choice, NamedTool) and choice.function.name not in names:
            raise invalid(f"tool_choice: {choice.function.name!r} is none of the tools", "tool_choice")
        return [] if choice == "none" else tools

    def forced(self) -> list[ToolSpec]:
        """Return the tools of which one must be called; none where the model may choose."""
        if isinstance(self.tool_choice, NamedTool):
            return [tool for tool in self.tools or [] if tool.function.name == self.tool_choice.function.name]
        return list(self.tools or []) if self.tool_choice == "required" else []
