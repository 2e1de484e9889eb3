"""`/v1/chat/completions`: from a checked request to generations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from server.answering import answer, check_model, first_choices, plan_of, tokens_of
from server.body import read_json
from server.chatschema import ChatRequest, Message, Rendering, ToolSpec
from server.chatwire import ChatWire
from server.errors import invalid
from server.grammar import Grammar, json_rule
from server.schema import parse
from server.service import Served, Service
from server.template import Rendered
from server.toolformat import ToolFormat, call_grammar, guided_grammar


async def chat_completions(service: Service, request: Request) -> Response:
    """Answer `POST /v1/chat/completions`."""
    served = service.ready()
    asked = parse(ChatRequest, await read_json(request))
    check_model(asked.model, served)
    wanted = asked.wanted_logprobs()
    offered = asked.offered()
    variables: dict[str, object] = {}
    if asked.reasoning_effort is not None:
        if not served.dialect.effort:
            raise invalid(
                "reasoning_effort is not supported: this model's chat template does not read it",
                "reasoning_effort",
                "unsupported_parameter",
            )
        variables["reasoning_effort"] = asked.reasoning_effort
    rendered = render(served, asked, asked.messages, offered, variables)
    prompt = await tokens_of(served, rendered.text, rendered.guard)
    limit = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    (first,) = first_choices(served, asked, [prompt], limit, wanted, "messages")
    first = replace(
        first,
        grammar=await _grammar(served, asked, offered),
        layout=served.dialect.layout(
            rendered.text,
            prompt,
            [spec.tool() for spec in offered],
            one_call=asked.parallel_tool_calls is False,
        ),
    )
    wire = ChatWire(
        served.name,
        served.fingerprint,
        served.tokenizer,
        logprobs=wanted is not None,
        usage=asked.include_usage,
    )
    return await answer(served, plan_of(asked, [first], wire), request)


def render(
    served: Served,
    asked: Rendering,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    variables: dict[str, object],
) -> Rendered:
    """Return a conversation as the model's template renders it.

    Raises:
        ApiError: 400, the model has no chat template, or none with tools where there are some; or the
            template refuses the messages.
    """
    if served.template is None:
        raise invalid("this model has no chat template; use /v1/completions", "model")
    if tools:
        _form(served)
    elif not served.dialect.tools and any(message.tool_calls for message in messages):
        raise invalid("this model's chat template has no tools, so it cannot show tool_calls", "messages")
    given = asked.chat_template_kwargs or {}
    for name in sorted({"messages", "tools", "add_generation_prompt"} & given.keys()):
        raise invalid(f"chat_template_kwargs: {name} is not to be given here", "chat_template_kwargs")
    for name in ("enable_thinking", "thinking"):
        # Any text is true to a template, "false" as well.
        if not isinstance(given.get(name, False), bool):
            raise invalid(f"chat_template_kwargs: {name} must be true or false", "chat_template_kwargs")
    generation = asked.add_generation_prompt
    return served.template.render(
        [message.plain() for message in messages],
        {**variables, **given},
        tools=[tool.plain() for tool in tools],
        add_generation_prompt=True if generation is None else generation,
    )


def _form(served: Served) -> ToolFormat:
    if served.dialect.form is None:
        why = (
            "writes calls in a form that this server does not know"
            if served.dialect.tools
            else "has no tools"
        )
        raise invalid(f"tools: this model's chat template {why}", "tools", "tools_not_supported")
    return served.dialect.form


async def _grammar(served: Served, asked: ChatRequest, offered: Sequence[ToolSpec]) -> Grammar | None:
    """Return the grammar of the content, or None for free text."""
    schema, forced = asked.wanted_schema(), asked.forced()
    several = asked.parallel_tool_calls is not False
    compiler, tokenizer = served.grammars, served.tokenizer
    if schema is None and not forced and not any(spec.function.strict for spec in offered):
        return None
    if asked.ignore_eos:
        raise invalid(
            "ignore_eos: an answer that follows a grammar ends where the grammar does", "ignore_eos"
        )
    if forced:
        tools = [spec.tool() for spec in forced]
        more = several and asked.tool_choice == "required"
        return await compiler.compile(call_grammar(_form(served), tools, tokenizer, several=more), "tools")
    if schema is None:
        # A function that is not strict may be called with any object.
        tools = [
            spec.tool() if spec.function.strict else replace(spec.tool(), parameters={}) for spec in offered
        ]
        return await compiler.compile(guided_grammar(_form(served), tools, tokenizer), "tools")
    body = json_rule(schema, "response_format")
    if offered:
        tools = [spec.tool() for spec in offered]
        text = call_grammar(_form(served), tools, tokenizer, several=several, answer=body)
        return await compiler.compile(text, "response_format")
    return await compiler.compile(f"start: {body}\n", "response_format")
