"""From the text of a section of calls to the calls, in whichever form the model writes them.

Nothing is guessed: a text that is not wholly calls of the form is no call, and whoever asked shows it as
content instead.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from server.toolformat import Body, Tool, ToolFormat, is_text

FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*?)</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
SEPARATORS = re.compile(r"[\s;,]*")
DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One parsed call."""

    name: str
    arguments: str  # a JSON object as text
    ident: str = ""
    index: int = 0  # its place in the answer


def parse_calls(form: ToolFormat, tools: Sequence[Tool], section: str) -> list[ToolCall] | None:
    """Return the calls in a section (without its begin and end), or None if it is anything else."""
    try:
        calls = READERS[form.body](form, tools, section)
    except (ValueError, RecursionError):  # no JSON, an integer of thousands of digits, NaN
        return None
    return calls or None


def call_id(form: ToolFormat, salt: bytes, index: int, call: ToolCall) -> str:
    """Return an id that follows from the prompt (`salt`), the place and the call: a rerun has the same."""
    text = json.dumps([index, call.name, call.arguments]).encode()
    return form.id_prefix + hashlib.sha256(salt + text).hexdigest()[: form.id_length]


def _read_json(form: ToolFormat, tools: Sequence[Tool], section: str) -> list[ToolCall]:
    calls: list[ToolCall] = []
    at = _skip(section, 0)
    while at < len(section):
        value, at = DECODER.raw_decode(section, at)
        calls.extend(_call(item, form) for item in (value if isinstance(value, list) else [value]))
        at = _skip(section, at)
    return calls


def _skip(text: str, at: int) -> int:
    found = SEPARATORS.match(text, at)
    return found.end() if found else at


def _call(value: object, form: ToolFormat) -> ToolCall:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("no call")
    given = value.get("arguments", value.get("parameters", None if form.bare else {}))
    if isinstance(given, str):
        given = json.loads(given)
    return ToolCall(value["name"], _arguments(given))


def _arguments(value: object) -> str:
    if not isinstance(value, dict):
        raise ValueError("arguments are an object")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()  # half a surrogate pair is no text: a ValueError
    return text


def _read_named(form: ToolFormat, tools: Sequence[Tool], section: str) -> list[ToolCall]:
    calls = []
    for part in section.split(form.begin):
        name, mark, arguments = part.partition(form.middle)
        if not mark or len(name.split()) != 1:
            raise ValueError("no call")
        calls.append(ToolCall(name.strip(), _arguments(json.loads(arguments))))
    return calls


def _read_xml(form: ToolFormat, tools: Sequence[Tool], section: str) -> list[ToolCall]:
    schemas = {tool.name: tool.parameters for tool in tools}
    calls = []
    for name, inside in _all_of(FUNCTION, section):
        properties = schemas.get(name, {}).get("properties", {})
        known = properties if isinstance(properties, Mapping) else {}
        values = {key: _value(text, known.get(key)) for key, text in _all_of(PARAMETER, inside)}
        calls.append(ToolCall(name, _arguments(values)))
    return calls


def _all_of(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Return the pairs that the pattern finds one after the other; ValueError for anything between."""
    out, at = [], 0
    while at < len(text):
        found = pattern.match(text, at)
        if found is None:
            if text[at:].strip():
                raise ValueError("no call")
            break
        out.append((found[1].strip(), found[2]))
        at = found.end()
    return out


def _value(text: str, schema: object) -> object:
    if is_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


READERS: Mapping[Body, Callable[[ToolFormat, Sequence[Tool], str], list[ToolCall]]] = {
    "json": _read_json,
    "named": _read_named,
    "xml": _read_xml,
}
