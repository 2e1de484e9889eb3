"""The forms in which models write calls of tools: what to look for, and the grammar that forces a call.

A form is data. Which one a model uses is read off its chat template: the first form whose marks all stand
in it. The parts of a call are what templates show their models, so that a forced call is the text that the
model was trained to write:

    first NAME middle ARGUMENTS last        one call; `between` joins several, `head` and `tail` enclose them
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from server.errors import invalid
from server.grammar import json_rule, literal
from server.tokenizer import Tokenizer

Body = Literal["json", "named", "xml"]


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How one family of models writes calls."""

    name: str
    marks: tuple[str, ...]  # all stand in the chat template of a model that writes so
    begin: str  # opens a section of calls in the answer
    end: str  # closes it; empty: the section reaches to the answer's end
    body: Body  # JSON objects or lists of them; `name[ARGS]{...}`; `<function=name><parameter=key>...`
    head: str = ""
    first: str = '{"name": "'
    middle: str = '", "arguments": '
    last: str = "}"
    between: str = ""
    tail: str = ""
    bare: bool = False  # an answer that begins with `{` is read as a call too
    id_length: int = 24  # hex digits of a call's id
    id_prefix: str = "call_"


FORMATS = (
    ToolFormat(
        "qwen3-coder",
        ("<tool_call>", "<function="),
        "<tool_call>",
        "</tool_call>",
        "xml",
        first="<tool_call>\n<function=",
        middle=">\n",
        last="</function>\n</tool_call>",
        between="\n",
    ),
    ToolFormat(
        "hermes",
        ("<tool_call>",),
        "<tool_call>",
        "</tool_call>",
        "json",
        first='<tool_call>\n{"name": "',
        last="}\n</tool_call>",
        between="\n",
    ),
    ToolFormat(
        "mistral-args",
        ("[TOOL_CALLS]", "[ARGS]"),
        "[TOOL_CALLS]",
        "",
        "named",
        first="[TOOL_CALLS]",
        middle="[ARGS]",
        last="",
        id_length=9,
        id_prefix="",
    ),
    ToolFormat(
        "mistral",
        ("[TOOL_CALLS]",),
        "[TOOL_CALLS]",
        "",
        "json",
        head="[TOOL_CALLS][",
        between=", ",
        tail="]",
        id_length=9,
        id_prefix="",
    ),
    ToolFormat(
        "phi4-mini",
        ("<|tool_call|>",),
        "<|tool_call|>",
        "<|/tool_call|>",
        "json",
        head="<|tool_call|>[",
        between=", ",
        tail="]<|/tool_call|>",
    ),
    ToolFormat(
        "llama3",
        ('"parameters":', "tools"),
        "<|python_tag|>",
        "",
        "json",
        middle='", "parameters": ',
        between="; ",
        bare=True,
    ),
)


TEXT_RULE = r"TEXT: /(.|\n)*/"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, object]  # JSON Schema of its arguments


def find_format(template: str) -> ToolFormat | None:
    """Return the form that a chat template shows its model, or None for one without tools."""
    if "tools" not in template:
        return None
    return next((form for form in FORMATS if all(mark in template for mark in form.marks)), None)


def call_grammar(
    form: ToolFormat, tools: Sequence[Tool], tokenizer: Tokenizer, *, several: bool, answer: str | None = None
) -> str:
    """Return a grammar of one call, or of one or more.

    Args:
        form: how the model writes calls.
        tools: those that may be called.
        tokenizer: knows which marks are control tokens.
        several: whether more than one call may be made.
        answer: the body of a rule that may stand instead of any call.
    """
    between = literal(form.between, tokenizer)
    more = f"({between} call)*" if several else ""
    lines = [
        "start: calls" if answer is None else "start: calls | answer",
        f"calls: {literal(form.head, tokenizer)} call {more} {literal(form.tail, tokenizer)}",
        *([] if answer is None else [f"answer: {answer}"]),
        *_calls(form, tools, tokenizer, literal(form.first, tokenizer)),
    ]
    return "\n".join(lines) + "\n"


def guided_grammar(form: ToolFormat, tools: Sequence[Tool], tokenizer: Tokenizer) -> str:
    """Return a grammar of free text in which every section of calls, once begun, is well-formed."""
    if form.bare:
        rest = call_grammar(form, tools, tokenizer, several=True, answer="FREE")
        return rest + r"FREE: /([^{](.|\n)*)?/" + "\n"
    # The mark that opens a section ends the text before it; what follows the mark is forced.
    token = tokenizer.control_id(form.begin)
    lead = "lead[lazy]: TEXT " + json.dumps(form.begin) if token is None else f"lead: TEXT <[{token}]>"
    head, first = form.head.removeprefix(form.begin), form.first.removeprefix(form.begin)
    between, tail = literal(form.between, tokenizer), literal(form.tail, tokenizer)
    several = f"lead {literal(head, tokenizer)} call ({between} call)* {tail}"
    section = several if form.head else "lead call"
    lines = ["start: section* TEXT", f"section: {section}", lead]
    lines += _calls(form, tools, tokenizer, literal(first, tokenizer))
    if TEXT_RULE not in lines:
        lines.append(TEXT_RULE)
    return "\n".join(lines) + "\n"


def _calls(form: ToolFormat, tools: Sequence[Tool], tokenizer: Tokenizer, first: str) -> list[str]:
    """Return the rules of `call`, whose names come after `first`."""
    lines = ["call: " + " | ".join(f"call_{at}" for at in range(len(tools)))]
    if form.body == "xml":
        lines.append(TEXT_RULE)
    for at, tool in enumerate(tools):
        if form.body == "xml":
            arguments = " ".join(_parameters(f"value_{at}", tool, lines))
        else:
            lines.append(f"arguments_{at}: {json_rule(_object(tool), 'tools')}")
            arguments = f"arguments_{at}"
        opening, last = literal(tool.name + form.middle, tokenizer), literal(form.last, tokenizer)
        lines.append(f"call_{at}: {first} {opening} {arguments} {last}")
    return lines


def _object(tool: Tool) -> Mapping[str, object]:
    """Return the schema of a tool's arguments, which are an object whatever the schema says."""
    return tool.parameters if "type" in tool.parameters else {**tool.parameters, "type": "object"}


def _parameters(prefix: str, tool: Tool, lines: list[str]) -> list[str]:
    """Add rules for the parameters of a tool in XML form and return how they follow one another."""
    properties = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    if not isinstance(properties, Mapping) or not isinstance(required, Sequence):
        raise invalid("tools: properties is an object and required a list", "tools")
    definitions = {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
    out = []
    for at, (key, schema) in enumerate(properties.items()):
        rule = f"{prefix}_{at}"
        if is_text(schema):
            lines.append(f'{rule}[lazy]: TEXT "\\n</parameter>\\n"')
        else:
            inner = {**definitions, **schema} if isinstance(schema, Mapping) else schema
            lines.append(f'{rule}: {rule}_json "\\n</parameter>\\n"')
            lines.append(f"{rule}_json: {json_rule(inner, 'tools')}")
        opening = json.dumps(f"<parameter={key}>\n", ensure_ascii=False)
        out.append(f"({opening} {rule})" + ("" if key in required else "?"))
    return out


def is_text(schema: object) -> bool:
    """Whether a parameter's value is any text, which the XML form writes without quotes."""
    return isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema
